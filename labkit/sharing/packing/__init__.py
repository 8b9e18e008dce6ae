"""Which job goes to which device, and when: a queue, five policies, one scheduler, and a simulator of it."""
