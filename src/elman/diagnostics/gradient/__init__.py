"""Growth of gradients by lag, along trajectories and in both directions."""
