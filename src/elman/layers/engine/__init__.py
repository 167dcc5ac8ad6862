"""How a layer runs: batches, schedules, slabs, backpropagation through time, and the memory they reuse."""
