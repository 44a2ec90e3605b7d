"""Batch normalization over the batches of all ranks.

    forward    sums, counts   --allreduce-->  the common mean
               squares around that mean --allreduce-->  the common variance
    backward   sums of the gradients, and of them times the normalized inputs  --allreduce-->  the input's gradient

The squares are taken around the common mean in a second exchange: a difference of two large sums would lose the
variance of inputs that lie far from zero. 16-bit inputs are added up as float32.

Sources: S. Ioffe, C. Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
Shift", 2015; T. Chan, G. Golub, R. LeVeque, "Algorithms for Computing the Sample Variance", 1983 (two passes).
"""

from __future__ import annotations

from typing import Any

import torch
from farandole import ProcessSet, Sum
from farandole.plugin import is_alone

from farandole_torch._adapter import Tensor, collectives
from farandole_torch._private import BatchNorm


class SyncBatchNorm(BatchNorm):  # type: ignore[misc]  # torch is not read
    """`torch.nn.BatchNorm1d`, `2d` and `3d` whose batch is that of all ranks together, wherever a batch is averaged.

    So every rank must call it as often, also in `eval()` where there are no running statistics. The ranks' batches may
    differ in size, and a rank's may be empty. Tensors may be on the host or on a GPU. Batch normalization is by Ioffe
    and Szegedy, 2015.

    Example:
        >>> norm = hvd.SyncBatchNorm(1, eps=0.0)
        >>> outputs = norm(torch.tensor([[2.0], [4.0]]) * hvd.rank())  # 0 and 0 on rank 0; 2 and 4 on rank 1
        >>> norm.running_mean  # a tenth of their mean
        tensor([0.1500])
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet | None = None,
    ) -> None:
        """Like torch's.

        Args:
            num_features: the channels, the extent of the input's second dimension.
            eps: added to the variance.
            momentum: the weight of a batch in the running statistics; None: all batches weigh as much.
            affine: whether there are a weight and a bias, whose gradients are those of this rank's batch.
            track_running_stats: whether to keep running statistics, which `eval()` then uses.
            process_set: the ranks whose batches are one, by default all. On the others it is torch's.
        """
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def forward(self, input: Tensor) -> Tensor:
        """The input, of shape (batch, channels, ...), normalized over all but its channels.

        Raises:
            ValueError: an input of one dimension, or of other channels, or one value for each channel on all ranks.
            MismatchError: the ranks' inputs differ in dtype or channels.
        """
        self._check_input_dim(input)
        if not self.training and self.running_mean is not None:
            return super().forward(input)
        if is_alone(self.process_set):
            return super().forward(input)
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps, self.process_set)
        if self.training and self.running_mean is not None:
            self._remember(mean, variance * (count / (count - 1)))
        return output

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm takes inputs of shape (batch, channels, ...), not {tuple(input.shape)}")
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"SyncBatchNorm was made for {self.num_features} channels, and its input of shape "
                f"{tuple(input.shape)} has {input.shape[1]}"
            )
        if not input.is_floating_point():
            raise ValueError(f"SyncBatchNorm takes floats, not {input.dtype}")

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        self.num_batches_tracked.add_(1)
        weight = self.momentum if self.momentum is not None else 1.0 / float(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(variance.to(self.running_var.dtype), weight)


class _Normalize(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, process_set: ProcessSet | None
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        wide = input.to(_wide(input))
        over = [axis for axis in range(input.dim()) if axis != 1]
        mine = wide.new_full((1,), input.numel() / max(input.shape[1], 1))
        sums = _summed(torch.cat([wide.sum(over), mine]), "mean", process_set)
        count = sums[-1].item()
        if count <= 1:
            raise ValueError(
                f"SyncBatchNorm needs more than one value for each channel on all ranks together; the input of this "
                f"rank has the shape {tuple(input.shape)}"
            )
        mean = sums[:-1] / count
        apart = wide - _along(mean, input)
        variance = _summed(apart.square().sum(over), "variance", process_set) / count
        scale = torch.rsqrt(variance + eps)
        normalized = apart.mul_(_along(scale, input))
        ctx.save_for_backward(normalized, weight, scale)
        ctx.over, ctx.count, ctx.process_set, ctx.dtype = over, count, process_set, input.dtype
        ctx.mark_non_differentiable(mean, variance)
        output = normalized if weight is None else normalized * _along(weight, input) + _along(bias, input)
        output = output.to(input.dtype, copy=output is normalized)
        return output, mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        normalized, weight, scale = ctx.saved_tensors
        wide = gradient.to(normalized.dtype)
        of_bias, of_weight = wide.sum(ctx.over), (wide * normalized).sum(ctx.over)
        of_input = None
        if ctx.needs_input_grad[0]:
            sums = _summed(torch.stack([of_bias, of_weight]), "gradient", ctx.process_set) / ctx.count
            of_input = wide - _along(sums[0], wide) - normalized * _along(sums[1], wide)
            of_input *= _along(scale if weight is None else scale * weight, wide)
            of_input = of_input.to(ctx.dtype)
        if weight is None:
            return of_input, None, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None


def _wide(tensor: Tensor) -> Any:
    return torch.promote_types(tensor.dtype, torch.float32)


def _along(channels: Tensor, like: Tensor) -> Tensor:
    """One value for each channel, to be combined with a tensor of shape (batch, channels, ...)."""
    return channels.reshape(1, -1, *[1] * (like.dim() - 2))


def _summed(mine: Tensor, what: str, process_set: ProcessSet | None) -> Tensor:
    name = f"SyncBatchNorm.{what}"
    return collectives.allreduce_(mine.contiguous(), None, name, Sum, process_set=process_set)
