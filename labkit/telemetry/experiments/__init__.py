"""What the labs on looking try out: which counter tells what, and what looking costs."""
