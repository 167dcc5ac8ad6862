"""Order and chaos of large random networks, by mean-field theory."""
