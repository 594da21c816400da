"""Trained encoders: find their attention, fold the norms, verify the result against the model itself."""

from metastable.encoders.adapter import Adapter
from metastable.encoders.adapters import ADAPTERS
from metastable.encoders.encoder import Encoder
from metastable.encoders.layer import Layer
from metastable.encoders.load import load
from metastable.encoders.norm import Norm
from metastable.encoders.verification import Verification

__all__ = ["ADAPTERS", "Adapter", "Encoder", "Layer", "Norm", "Verification", "load"]
