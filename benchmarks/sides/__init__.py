"""One package each behind one interface, in a process of its own."""
