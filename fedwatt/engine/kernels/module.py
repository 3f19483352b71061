"""Modules of one's own that are an MLP in other words: the MLP's kernels do their work."""

from torch import Tensor

from fedwatt.engine.kernels.lines import followed
from fedwatt.models import ModuleModel
from fedwatt.models.kernel import Kernel, register


class ModuleKernel(Kernel):
    """For `ModuleModel` itself; steps are taken as the MLP by `engine.together`."""

    def along(
        self, model: ModuleModel, weights: Tensor, lines: Tensor, offsets: Tensor, windows: Tensor
    ) -> Tensor | None:
        """Polynomials in the offset, as for an MLP: see `lines`."""
        stack = model.relu_stack(*windows.shape[-2:])
        if stack is None:
            return None
        moved = (stack.to_mlp(weights), stack.to_mlp(lines))
        return followed(stack.model.layout, *moved, offsets, windows.flatten(-2))


register(ModuleModel, ModuleKernel())
