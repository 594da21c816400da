"""Theory: what the spectrum of M = V B^T and of V says about the flow, before any simulation.

spectrum -> limit map -> exact zero-temperature solution -> Laplace principle -> stability, closure -> forecast.
"""

from metastable.spectral import Dominant, dominant
from metastable.theory import equiangular, moebius, scalar_heads
from metastable.theory.antipodes import (
    critical_beta,
    escape_rate,
    last_departure,
    synchronisation_rate,
    tilting_rate,
)
from metastable.theory.assumptions import Assumption
from metastable.theory.attention_jacobian import attention_jacobian, tangent_bases
from metastable.theory.bound import Bound
from metastable.theory.chaos import context_spread, sampled_circle_distance, weight_derivative
from metastable.theory.closed_forms import log_jacobian, planar_travel_time, transported_density, uniform_distance
from metastable.theory.closure import Cluster
from metastable.theory.common_noise import TwoPointMotion, largest_dimension
from metastable.theory.finite_context import FiniteContext, finite_context, side_influence
from metastable.theory.forecast import Forecast, forecast
from metastable.theory.laplace import (
    attention_defect,
    bessel_ratio,
    bessel_ratio_expansion,
    cap_bound,
    density_bound,
    effective_tokens,
    log_partition_uniform,
    sampling_error,
    smooth_mean,
    uniform_cap,
    uniform_mean,
)
from metastable.theory.limit import ExceptionalTokens, LimitMap, comoving_target, limit, limit_map
from metastable.theory.mixed_modes import mixed_equilibria, mixed_points
from metastable.theory.modes import clustering_time, fastest_mode, growth_rate
from metastable.theory.phases import Terminal, Times, phase_times, terminal
from metastable.theory.picard import Prediction
from metastable.theory.polygon import polygon_rate, token_rate
from metastable.theory.priori import PrioriBound, priori_bound
from metastable.theory.pure_modes import PureMode, split_factor, split_threshold
from metastable.theory.rates import (
    Rates,
    guaranteed_distance,
    guaranteed_tangent,
    local_rate,
    rates,
    rayleigh,
    rotation_period,
    squared_tangent,
)
from metastable.theory.retrieval import (
    critical_depth,
    log_retrieval_profile,
    multihead_profile,
    retrieval_profile,
    token_profile,
)
from metastable.theory.selection import equilibrium_residual, selection_weights
from metastable.theory.spectrum import Spectrum, spectrum
from metastable.theory.stability import (
    PosterioriBound,
    growth_constant,
    jacobian,
    optimal_time,
    posteriori_bound,
    synchronous_distance,
    velocity_defect,
)
from metastable.theory.two_clusters import closing_speed, merging_time
from metastable.theory.zero_temperature import clock, coupling_to_limit, distance_to_limit, zero_temperature

__all__ = [
    "Assumption",
    "Bound",
    "Cluster",
    "Dominant",
    "ExceptionalTokens",
    "FiniteContext",
    "Forecast",
    "LimitMap",
    "PosterioriBound",
    "Prediction",
    "PrioriBound",
    "PureMode",
    "Rates",
    "Spectrum",
    "Terminal",
    "Times",
    "TwoPointMotion",
    "attention_defect",
    "attention_jacobian",
    "bessel_ratio",
    "bessel_ratio_expansion",
    "cap_bound",
    "clock",
    "closing_speed",
    "clustering_time",
    "comoving_target",
    "context_spread",
    "coupling_to_limit",
    "critical_beta",
    "critical_depth",
    "density_bound",
    "distance_to_limit",
    "dominant",
    "effective_tokens",
    "equiangular",
    "equilibrium_residual",
    "escape_rate",
    "fastest_mode",
    "finite_context",
    "forecast",
    "growth_constant",
    "growth_rate",
    "guaranteed_distance",
    "guaranteed_tangent",
    "jacobian",
    "largest_dimension",
    "last_departure",
    "limit",
    "limit_map",
    "local_rate",
    "log_jacobian",
    "log_partition_uniform",
    "log_retrieval_profile",
    "merging_time",
    "mixed_equilibria",
    "mixed_points",
    "moebius",
    "multihead_profile",
    "optimal_time",
    "phase_times",
    "planar_travel_time",
    "polygon_rate",
    "posteriori_bound",
    "priori_bound",
    "rates",
    "rayleigh",
    "retrieval_profile",
    "rotation_period",
    "sampled_circle_distance",
    "sampling_error",
    "scalar_heads",
    "selection_weights",
    "side_influence",
    "smooth_mean",
    "spectrum",
    "split_factor",
    "split_threshold",
    "squared_tangent",
    "synchronisation_rate",
    "synchronous_distance",
    "tangent_bases",
    "terminal",
    "tilting_rate",
    "token_profile",
    "token_rate",
    "transported_density",
    "uniform_cap",
    "uniform_distance",
    "uniform_mean",
    "velocity_defect",
    "weight_derivative",
    "zero_temperature",
]
