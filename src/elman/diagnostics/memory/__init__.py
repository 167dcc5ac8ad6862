"""How much of the input the state remembers, and for how long."""
