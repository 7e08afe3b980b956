"""Writes the schedule files in the folder of this script: PyTorch's own schedules, as PyTorch writes them.

    python make.py        needs torch (the files here are of 2.15)

4 ranks, 8 microbatches; two stages per rank, but one for 1F1B and GPipe.
"""

import pathlib
import types

from torch.distributed.pipelining import schedules

RANKS, MICROBATCHES = 4, 8
FOLDER = pathlib.Path(__file__).parent


def stage(index, stages):
    """What the constructors of schedules ask of a stage."""
    return types.SimpleNamespace(
        stage_index=index,
        num_stages=stages,
        group=None,
        group_size=RANKS,
        group_rank=0,
        is_first=index == 0,
        is_last=index == stages - 1,
        has_backward=False,
        stage_index_to_group_rank={s: s % RANKS for s in range(stages)},
        submod=None,
    )


def write(name, schedule, *own_stages, stages=2 * RANKS):
    order = schedule([stage(s, stages) for s in own_stages], MICROBATCHES)
    order._dump_csv(FOLDER / f"{name}.csv", "compute_only")
    order._dump_csv(FOLDER / f"{name}.comms.csv", "compute_comms")


# `Schedule1F1B._get_pipeline_order` numbers the forwards of the last rank from 1, so it isn't used. The interleaved
# schedule warms up with more forwards.
write("1f1b", schedules.ScheduleInterleaved1F1B, 0, stages=RANKS)
write("gpipe", schedules.ScheduleLoopedBFS, 0, stages=RANKS)
write("looped-bfs", schedules.ScheduleLoopedBFS, 0, RANKS)
write("interleaved-1f1b", schedules.ScheduleInterleaved1F1B, 0, RANKS)
write("interleaved-zero-bubble", schedules.ScheduleInterleavedZeroBubble, 0, RANKS)
write("zbv", schedules.ScheduleZBVZeroBubble, 0, 2 * RANKS - 1)
write("dualpipev", schedules.ScheduleDualPipeV, 0, 2 * RANKS - 1)
