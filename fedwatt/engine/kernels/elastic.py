"""FedEL's model with early exits: a step in C is that of the model inside."""

from fedwatt.methods.elastic_model import ElasticModel
from fedwatt.models.kernel import Kernel, ModelStep, kernel_for, register


class ElasticKernel(Kernel):
    """For `ElasticModel`; its exits lie behind the model's own weights and are left alone."""

    def step(self, model: ElasticModel, batch: int, window: int) -> ModelStep | None:
        """Return the model's own."""
        return kernel_for(model.base).step(model.base, batch, window)


register(ElasticModel, ElasticKernel())
