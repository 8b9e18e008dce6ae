"""What only one lab needs: experiments, slow programs, planted faults and single-lab widgets."""
