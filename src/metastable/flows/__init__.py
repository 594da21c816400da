"""Right-hand sides: one file per flow."""

from metastable.flows.axisymmetric import AxisymmetricAttention
from metastable.flows.causal import Causal
from metastable.flows.common_noise import CommonNoise
from metastable.flows.covariance import Covariance
from metastable.flows.drift import Drift, Velocity
from metastable.flows.energy import interaction_energy
from metastable.flows.euclidean import EuclideanAttention
from metastable.flows.flow import Flow
from metastable.flows.hardmax import Hardmax
from metastable.flows.head_descent import HeadDescent
from metastable.flows.multihead import MultiHead
from metastable.flows.relu import ReLUAttention
from metastable.flows.rescaled import RescaledAttention
from metastable.flows.softmax import SelfAttention
from metastable.flows.unnormalized import UnnormalizedAttention
from metastable.flows.zero_temperature import ZeroTemperature

__all__ = [
    "AxisymmetricAttention",
    "Causal",
    "CommonNoise",
    "Covariance",
    "Drift",
    "EuclideanAttention",
    "Flow",
    "Hardmax",
    "HeadDescent",
    "MultiHead",
    "ReLUAttention",
    "RescaledAttention",
    "SelfAttention",
    "UnnormalizedAttention",
    "Velocity",
    "ZeroTemperature",
    "interaction_energy",
]
