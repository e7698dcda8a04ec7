"""Record the terms of the loss, learning rate, accuracy and replay of lanes, epoch by epoch."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fcforge.core.spec import Training
from fcforge.core.training_log import ACCURACY, ERROR, LOSS, RATE, REPLAY, SiteLog
from fcforge.methods.base import Lane, Learner, label_loss
from fcforge.nn.adam import Adam
from fcforge.nn.tensors import Params
from fcforge.replay.bank import Bank, gather
from fcforge.training.lanes import Job, lift_learner, stack


class NoRecorder:
    """Recorder of a training without a log: it does nothing. Arguments are those of `Recorder`."""

    def refreshed(self, epoch: int, before: Lane, lane: Lane) -> None:
        """Record nothing after the method's `begin_epoch`."""

    def trained(
        self, epoch: int, lane: Lane, optimiser: Adam, sums: Params, steps: int
    ) -> Params:
        """Return the sums as they are."""
        return sums

    def close(self) -> None:
        """Write nothing."""


class Recorder(NoRecorder):
    """Recorder of all lanes while they learn a site.

    Numbers stay on the device until `close`, so that a GPU never waits for them.

    Parameters
    ----------
    learner : Learner
    jobs : sequence of Job
    training : Training
    bank : Bank
    logs : sequence of SiteLog
        One per job; filled by `close`.
    """

    def __init__(
        self,
        learner: Learner,
        jobs: Sequence[Job],
        training: Training,
        bank: Bank,
        logs: Sequence[SiteLog],
    ) -> None:
        inputs = bank.inputs(learner.model)
        self._jobs = jobs
        self._logs = logs
        self._rate = learner.model.lr if training.lr is None else training.lr
        self._points: list[tuple[str, int, Tensor]] = []
        rows = [job.learner(learner).method.rows(job.lane, job.site) for job in jobs]
        self._rows = stack(rows)
        self._quality_name = ERROR if bank.y.is_floating_point() else ACCURACY

        def quality(lane_learner: Learner, lane: Lane, rows: Tensor) -> Tensor:
            """Return one lane's accuracy, or squared error, on its training subjects `rows`."""
            y = bank.y[rows]
            logits = lane_learner.method.logits(
                lane_learner.model, lane, gather(inputs, rows)
            )
            if y.is_floating_point():
                return label_loss(logits, y)
            return (logits.argmax(-1) == y).float().mean()

        def observations(
            lane_learner: Learner, before: Lane, lane: Lane
        ) -> dict[str, Tensor]:
            """Return the values that one lane's method logs after its `begin_epoch`, by name."""
            return lane_learner.method.observations(before, lane)

        self._quality = lift_learner(quality, learner, jobs)
        self._observations = lift_learner(observations, learner, jobs)

    def refreshed(self, epoch: int, before: Lane, lane: Lane) -> None:
        """Record what the method observes (`Method.observations`) after its `begin_epoch`.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        before, lane : Lane
            All lanes before and after `begin_epoch`.
        """
        for name, value in self._observations(before, lane).items():
            self._points.append((f"{REPLAY}/{name}", epoch, value.detach().clone()))

    def trained(
        self, epoch: int, lane: Lane, optimiser: Adam, sums: Params, steps: int
    ) -> Params:
        """Record losses, learning rate and accuracy of an epoch.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0.
        lane : Lane
            All lanes after the epoch.
        optimiser : Adam
            State of the optimiser of all lanes.
        sums : dict of Tensor
            Terms of the loss, summed over the epoch's steps.
        steps : int
            Number of steps of the epoch.

        Returns
        -------
        dict of Tensor
            Sums of zero, for the next epoch.
        """
        for name, value in sums.items():
            self._points.append((f"{LOSS}/{name}", epoch, value / steps))
        self._points.append((RATE, epoch, optimiser.factor * self._rate))
        with torch.no_grad():
            quality = self._quality(lane, self._rows)
        self._points.append((self._quality_name, epoch, quality))
        return {name: torch.zeros_like(value) for name, value in sums.items()}

    def close(self) -> None:
        """Write all points into the logs."""
        for name, epoch, points in self._points:
            values = points.double().cpu()
            # one lane alone has no dimension for lanes
            lanes = values[None] if len(self._jobs) == 1 else values
            for job, log, value in zip(self._jobs, self._logs, lanes, strict=True):
                if not value.dim():  # a single number; epochs are logged from 1
                    log.add(name, epoch + 1, float(value))
                    continue
                # one number of each past site; the last name of the prefix is the present site
                for past_site, number in zip(job.prefix, value.tolist(), strict=False):
                    if not math.isnan(number):
                        log.add(name, epoch + 1, number, past_site)
