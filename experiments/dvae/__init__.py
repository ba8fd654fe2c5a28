"""The discrete k-subset variational auto-encoder (section 5.2 of the paper), its ELBO exact."""

from experiments.dvae.model import DiscreteVAE

__all__ = ["DiscreteVAE"]
