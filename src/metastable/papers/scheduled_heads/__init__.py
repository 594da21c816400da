"""Time-dependent Wasserstein gradient flows [arXiv:2605.18870]: heads whose weights oscillate or are random.

Of the paper two statements are its own here, the fall of the dissipation like 1/H for random weights, and
stability; everything else is metastable's estimate. Its experiments are known from its public code.
"""

from metastable.papers.scheduled_heads import frozen, identity, many_heads, noise, stability

CLAIMS = (*identity.CLAIMS, *noise.CLAIMS, *many_heads.CLAIMS, *frozen.CLAIMS, *stability.CLAIMS)
