"""The compiled layer: kernels over flat arrays. It uses numpy and numba, and no class of ours.

Every array for kernels is flat and padded to whole vectors: a row of ``n`` numbers takes ``padded(n)`` places, so that
no loop has a remainder. Every sum is one chain, the start value and then ``k`` ascending, one fused multiply-add each:
no batch size, chunk of time or number of threads changes a bit of a result.
"""
