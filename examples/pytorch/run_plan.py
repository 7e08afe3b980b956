"""Runs a plan of OptPipe in PyTorch, with one process per rank. It keeps, offloads and recomputes each microbatch as
planned, splits backwards where the plan does, and measures every operation.

    python run_plan.py plan MODEL.py --ranks 4 --microbatches 8 --memory-limit 0.5 --out planned
    python run_plan.py run MODEL.py planned --steps 5 --out step.json
    optpipe profile planned/problem.json step-*.json --out problem-measured.json

`plan` is `measure`, which writes the problem, and then `optpipe plan` and `optpipe lower`. `run` takes the folder, or
the three files.

MODEL.py defines the training (README.md has an example):

    module(stage)                  the torch.nn.Module of a stage. It takes and returns a tensor, or several
    inputs(step, microbatch)       what the first stage takes
    loss(output, step, microbatch) a scalar. A step minimizes the mean over the microbatches
    optimizer(parameters)          optional; without it, gradients are left in the parameters
    recomputed                     optional: {storage option: [names of the submodules that it recomputes]}. An option
                                   that isn't named here recomputes the whole stage
    seed                           optional: an integer, from which random numbers follow, as those of dropout

`run` starts the processes on this machine, or is one of them under torchrun. It communicates through NCCL if each rank
has a GPU, and otherwise through gloo. Needs torch 2.6 or later; without torch, it prints a message and ends with
status 77.

From top to bottom: memory (what autograd saves is held in `block`s, which a `stash` can move and recompute), backwards
in two halves, one stage, one rank, and files.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
import weakref

try:
    import torch
    import torch.distributed as dist
    from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks
except ImportError as missing:
    print(f"skipped: torch can't be imported ({missing})")
    sys.exit(77)

# Seconds of the units that a problem may name.
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
OPERATION = re.compile(r"(\d+)([A-Z]+)(\d+)")
# What `plan` writes into its folder.
FILES = ("problem.json", "plan.json", "programs.json")
# Messages by which clocks are compared; the fastest counts. Not tuned.
ROUND_TRIPS = 8


def as_tuple(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def seed_of(training, step, stage, microbatch, stages, microbatches):
    """The seed of a stage's random numbers for a microbatch. It doesn't depend on the plan. Seeds of different trainings
    are far apart in 32 bits, which is all that PyTorch's generator of a CPU uses."""
    own = (step * stages + stage) * microbatches + microbatch
    return (getattr(training, "seed", 0) * 0x9E3779B1 + own) % 2**64


def synchronize(device):
    """Waits until the device has done what this thread has asked for."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


# Memory.


class meter:
    """Bytes in use, now and at most."""

    def __init__(self):
        self.now = self.most = 0
        self.lock = threading.Lock()

    def add(self, count):
        with self.lock:
            self.now += count
            self.most = max(self.most, self.now)


class block:
    """The memory of one or several saved tensors, on the device or on the host. It is counted while it exists, except
    that what a backward restores for itself is its workspace, which isn't part of a plan."""

    def __init__(self, storage, meters, is_counted):
        self.storage, self.host, self.bytes, self.meters = storage, None, storage.nbytes(), meters
        self.is_counted = False
        if is_counted:
            self.count()

    def count(self):
        if not self.is_counted:
            self.is_counted = True
            self.meters["device"].add(self.bytes)

    def as_bytes(self):
        return torch.empty(0, dtype=torch.uint8, device=self.storage.device).set_(self.storage)

    def copy_out(self):
        """Starts the copy to the host."""
        self.meters["host"].add(self.bytes)
        self.host = torch.empty(self.bytes, dtype=torch.uint8, pin_memory=self.storage.device.type == "cuda")
        self.host.copy_(self.as_bytes(), non_blocking=True)

    def leave_device(self):
        self.storage = None
        self.meters["device"].add(-self.bytes)

    def copy_in(self, device, user):
        """Starts the copy to the device; `user` is the stream that will use the memory, if there are streams."""
        self.meters["device"].add(self.bytes)
        tensor = torch.empty(self.bytes, dtype=torch.uint8, device=device)
        if user:
            tensor.record_stream(user)
        tensor.copy_(self.host, non_blocking=True)
        self.storage = tensor.untyped_storage()

    def leave_host(self):
        self.host = None
        self.meters["host"].add(-self.bytes)

    def __del__(self):
        if self.storage is not None and self.is_counted:
            self.meters["device"].add(-self.bytes)
        if self.host is not None:
            self.meters["host"].add(-self.bytes)


class saved:
    """What autograd holds in place of a saved tensor. `key` is its position among the saved tensors of the stage."""

    def __init__(self, memory, tensor, key):
        self.memory, self.key, self.dtype = memory, key, tensor.dtype
        self.shape = (tensor.storage_offset(), tensor.size(), tensor.stride())

    def tensor(self):
        if self.memory is None or self.memory.storage is None:
            raise RuntimeError("a saved tensor isn't on the device: do all microbatches of the stage have one graph?")
        storage = self.memory.storage
        return torch.empty(0, dtype=self.dtype, device=storage.device).set_(storage, *self.shape)


class stash:
    """What autograd saves in the forward of one microbatch of a stage. Autograd owns the memory through `saved`, and so
    frees it during the backward as it always does; the stash knows it by weak references."""

    def __init__(self, meters, weights, modules, needed_by_weight):
        """`weights`: addresses that aren't counted. `modules`: the submodules to recompute. `needed_by_weight`: keys of
        the tensors that W needs, or None while that isn't known."""
        self.meters, self.weights, self.modules, self.needed_by_weight = meters, weights, modules, needed_by_weight
        self.phase = "F"
        self.blocks = weakref.WeakValueDictionary()  # by address, of those on the device
        self.items = weakref.WeakSet()
        self.parts = []
        self.used = {}  # keys by phase, to find out what W needs
        self.count = 0

    def pack(self, tensor, key=None):
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address in self.weights or storage.nbytes() == 0:
            return tensor.detach()
        memory = self.blocks.get(address)
        if memory is None:
            memory = self.blocks[address] = block(storage, self.meters, self.phase in ("F", "RECOMPUTE", "kept"))
        item = saved(memory, tensor, key or ("forward", self.count))
        self.count += 1
        self.items.add(item)
        return item

    def unpack(self, item):
        if isinstance(item, torch.Tensor):
            return item
        tensor = item.tensor()
        self.used.setdefault(self.phase, set()).add(item.key)
        if self.phase == "I" and not self.is_kept(item):
            item.memory = None
        return tensor

    def is_kept(self, item):
        return self.needed_by_weight is None or item.key in self.needed_by_weight

    def leave_for_weight(self, gradients):
        """At the end of I: frees what W doesn't need, and keeps `gradients`. Returns what unpacks into them."""
        for item in list(self.items):
            if not self.is_kept(item):
                item.memory = None
        for item in list(self.items):
            if item.memory is not None:
                item.memory.count()
        self.phase = "kept"
        return [None if each is None else self.pack(each, ("gradient", n)) for n, each in enumerate(gradients)]

    def to_host(self, share):
        """Copies this share of the bytes, rounded up to whole blocks: first the blocks that W needs, the largest first."""
        for_weight = {id(item.memory) for item in list(self.items) if self.is_kept(item)}
        all_blocks = sorted(self.blocks.values(), key=lambda each: (id(each) not in for_weight, -each.bytes))
        left = share * sum(each.bytes for each in all_blocks)
        moved = []
        for each in all_blocks:
            if left > 0.5:  # of a byte
                moved.append(each)
                left -= each.bytes
        device = moved[0].storage.device if moved else torch.device("cpu")
        for each in moved:
            each.copy_out()
        synchronize(device)
        for each in moved:
            del self.blocks[each.storage.data_ptr()]
            each.leave_device()
        self.offloaded = moved

    def to_device(self, device, user):
        for each in self.offloaded:
            each.copy_in(device, user)
        synchronize(device)
        for each in self.offloaded:
            each.leave_host()
            self.blocks[each.storage.data_ptr()] = each
        self.offloaded = []

    def recompute(self):
        self.phase = "RECOMPUTE"
        for each in self.parts:
            each.recompute()


class recomputed_part:
    """The tensors that a submodule saves: its forward drops them, and recomputes them from its inputs under the same
    random state and autocast."""

    def __init__(self, owner, forward, args, kwargs):
        self.owner, self.forward, self.number = owner, forward, len(owner.parts)
        self.args = [self.hold(each) for each in args]
        self.kwargs = {name: self.hold(each) for name, each in kwargs.items()}
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        self.device = tensors[0].device if tensors else torch.device("cpu")
        self.random = torch.get_rng_state()
        if self.device.type == "cuda":
            self.device_random = torch.cuda.get_rng_state(self.device)
        kind = self.device.type
        self.autocast = {"device_type": kind, "enabled": torch.is_autocast_enabled(kind),
                         "dtype": torch.get_autocast_dtype(kind), "cache_enabled": torch.is_autocast_cache_enabled()}
        self.count, self.items = 0, None
        owner.parts.append(self)

    def hold(self, value):
        return (self.owner.pack(value), value.requires_grad) if isinstance(value, torch.Tensor) else (value, None)

    def held(self, item, needs_gradient):
        if needs_gradient is None:
            return item
        return self.owner.unpack(item).detach().requires_grad_(needs_gradient)

    def pack(self, _):
        self.count += 1
        return self.count - 1

    def unpack(self, number):
        if self.items is None:
            self.recompute()
        item = self.items[number]
        tensor = self.owner.unpack(item)
        if self.owner.phase in ("B", "W"):
            self.items[number] = None
        return tensor

    def recompute(self):
        items = []

        def pack(tensor):
            items.append(self.owner.pack(tensor, (self.number, len(items))))
            return len(items) - 1

        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.enable_grad(), torch.autocast(**self.autocast):
            torch.set_rng_state(self.random)
            if devices:
                torch.cuda.set_rng_state(self.device_random, self.device)
            args = [self.held(*each) for each in self.args]
            kwargs = {name: self.held(*each) for name, each in self.kwargs.items()}
            with saved_tensors_hooks(pack, lambda number: self.owner.unpack(items[number])):
                self.forward(*args, **kwargs)
        if len(items) != self.count:
            raise RuntimeError(f"a forward saved {self.count} tensors, and {len(items)} when it was recomputed")
        self.items = items


# Backwards in two halves.


class stage_input(torch.autograd.Function):
    """The beginning of a stage's graph. It hands the gradients over without holding the tensors, as leaves would."""

    @staticmethod
    def forward(ctx, anchor, receiver, *tensors):
        ctx.receiver = receiver
        ctx.set_materialize_grads(False)
        outputs = tuple(each.view_as(each) for each in tensors)
        ctx.mark_non_differentiable(*(each for each in outputs if not each.is_floating_point()))
        return outputs

    @staticmethod
    def backward(ctx, *gradients):
        ctx.receiver.input_gradients = gradients
        return (None, None, *(None for _ in gradients))


def successors_of(node):
    return [following for following, _ in node.next_functions if following is not None]


def in_topological_order(roots):
    """All nodes below the roots, each after those that it leads to."""
    order, seen = [], set()
    waiting = [(root, False) for root in roots]
    while waiting:
        node, is_done = waiting.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting.extend((each, False) for each in successors_of(node) if each not in seen)
    return order


def weights_by_node(roots, entry):
    """The nodes on the way to the stage's input, each with the weights whose gradients branch off there, and the roots
    beside that way, with their weights. The second result lists the weights that are used in several places; their
    gradients are computed together with the input's gradient."""
    leads_to_input, weights_below, branches = {entry}, {}, {}
    for node in in_topological_order(roots):
        following = successors_of(node)
        if node is entry or any(each in leads_to_input for each in following):
            leads_to_input.add(node)
            if node is not entry:
                aside = [weights_below[each] for each in following if each not in leads_to_input]
                branches[node] = {id(weight): weight for weights in aside for weight in weights.values()}
        elif hasattr(node, "variable"):
            weights_below[node] = {id(node.variable): node.variable}
        else:
            weights_below[node] = {key: w for each in following for key, w in weights_below[each].items()}
    branches.update({root: weights_below[root] for root in roots if root not in leads_to_input})
    uses = {}
    for weights in branches.values():
        for key in weights:
            uses[key] = uses.get(key, 0) + 1
    once = {node: [w for key, w in weights.items() if uses[key] == 1] for node, weights in branches.items()}
    shared = {key: w for weights in branches.values() for key, w in weights.items() if uses[key] > 1}
    return {node: weights for node, weights in once.items() if weights}, list(shared.values())


# One stage.


class cell:
    """A microbatch of a stage, from its forward to the end of its backward."""

    def __init__(self, own_stash, device):
        self.stash = own_stash
        self.anchor = torch.empty(0, device=device, requires_grad=True)
        self.input_gradients = ()
        self.roots, self.entry = [], None
        self.deferred = []  # (roots, gradients, weights) of W


class storage_option:
    def __init__(self, of_problem, full):
        self.name = of_problem["name"]
        self.is_ahead = of_problem.get("recompute", 0) > 0
        self.recomputes = self.is_ahead or of_problem.get("backward_extra", 0) > 0
        self.share = of_problem.get("transfer_size", 0) / (of_problem.get("held", full) or 1)


def options_of(stage):
    """The storage options of a stage of a problem, by name."""
    own = stage.get("storage")
    if own is None:
        own = [{"name": "keep"}]
        if stage.get("offload") is not None:
            own.append({"name": "offload", "transfer_size": stage["activation"]})
    return {each["name"]: storage_option(each, stage["activation"]) for each in own}


class stage_runner:
    """Runs the operations of one stage. `training` is what MODEL.py defines."""

    def __init__(self, training, number, stages, microbatches, device, meters):
        self.training, self.number, self.stages, self.microbatches = training, number, stages, microbatches
        self.device, self.meters = device, meters
        self.module = training.module(number).to(device)
        self.is_last = number == stages - 1
        self.recomputed = getattr(training, "recomputed", {})
        self.needed_by_weight = {}  # by storage option
        self.running = None
        names = {name for each in self.recomputed.values() for name in each} | {""}
        self.called = [(name, each) for name, each in self.module.named_modules() if name in names]
        for name, submodule in self.called:
            submodule.forward = functools.partial(self.call, name, submodule.forward)

    def release(self):
        """Leaves the module as it was."""
        for _, submodule in self.called:
            del submodule.forward

    def call(self, name, forward, *args, **kwargs):
        """The forward of a submodule that some option recomputes."""
        running = self.running
        if running is None or name not in running.modules:
            return forward(*args, **kwargs)
        part = recomputed_part(running, forward, args, kwargs)
        with saved_tensors_hooks(part.pack, part.unpack):
            return forward(*args, **kwargs)

    def new_stash(self, option):
        tensors = [*self.module.parameters(), *self.module.buffers()]
        weights = {each.untyped_storage().data_ptr() for each in tensors}
        modules = self.recomputed.get(option.name, [""]) if option.recomputes else []
        return stash(self.meters, weights, modules, self.needed_by_weight.get(option.name))

    def forward(self, step, microbatch, inputs, option):
        """Returns the cell, and the outputs: the loss on the last stage."""
        torch.manual_seed(seed_of(self.training, step, self.number, microbatch, self.stages, self.microbatches))
        now = cell(self.new_stash(option), self.device)
        if self.number > 0:
            inputs = stage_input.apply(now.anchor, now, *inputs)
            now.entry = next((each.grad_fn for each in inputs if each.grad_fn is not None), None)
        self.running = now.stash
        with saved_tensors_hooks(now.stash.pack, now.stash.unpack):
            outputs = as_tuple(self.module(*inputs))
            self.running = None
            if self.is_last:
                outputs = (self.training.loss(*outputs, step, microbatch),)
        floating = [each for each in outputs if each.is_floating_point()]
        now.roots = [get_gradient_edge(each) if each.requires_grad else None for each in floating]
        return now, tuple(each.detach() for each in outputs)

    def loss_gradients(self, now):
        return (torch.full((), 1.0 / self.microbatches, device=self.device),) * len(now.roots)

    @staticmethod
    def begin_backward(now, phase, gradients):
        """Returns the gradients of the outputs that have any."""
        now.stash.phase = phase
        gradients = [each for root, each in zip(now.roots, gradients, strict=True) if root is not None]
        now.roots = [each for each in now.roots if each is not None]
        return gradients

    def backward(self, now, gradients):
        gradients = self.begin_backward(now, "B", gradients)
        torch.autograd.backward(now.roots, gradients)
        return self.finish(now)

    def backward_input(self, now, gradients):
        """Without an input that has a gradient, nothing can be done before W."""
        gradients = self.begin_backward(now, "I", gradients)
        captured = [(now.roots, gradients, None)]
        if now.entry is not None:
            captured = self.backward_to_input(now, gradients)
        kept = iter(now.stash.leave_for_weight([each for _, all_of, _ in captured for each in all_of]))
        now.deferred = [(roots, [next(kept) for _ in all_of], weights) for roots, all_of, weights in captured]
        return now.input_gradients

    def backward_to_input(self, now, gradients):
        """Returns the work of W: a backward from each node where weights branch off, with the gradients that arrived there."""
        groups, shared = weights_by_node([each.node for each in now.roots], now.entry)
        arrived = {}
        hooks = [node.register_prehook(lambda all_of, node=node: arrived.__setitem__(node, all_of)) for node in groups]
        torch.autograd.backward(now.roots, gradients, retain_graph=True, inputs=[now.anchor, *shared])
        for each in hooks:
            each.remove()
        captured = []
        for node, weights in groups.items():
            there = [(GradientEdge(node, n), each) for n, each in enumerate(arrived.get(node, ())) if each is not None]
            if there:
                captured.append(([edge for edge, _ in there], [each for _, each in there], weights))
        beside = {}  # roots beside the way to the input, where I doesn't come, by their node
        for root, gradient in zip(now.roots, gradients):
            if root.node in groups and root.node not in arrived:
                edges, given = beside.setdefault(root.node, ([], []))
                edges.append(root)
                given.append(gradient)
        captured += [(edges, given, groups[node]) for node, (edges, given) in beside.items()]
        return captured

    def backward_weight(self, now):
        now.stash.phase = "W"
        while now.deferred:
            roots, items, weights = now.deferred.pop()
            gradients = [now.stash.unpack(each) for each in items]
            del items
            torch.autograd.backward(roots, gradients, inputs=weights)
        self.finish(now)

    def finish(self, now):
        now.stash.parts.clear()
        now.roots, now.entry = [], None
        return now.input_gradients

    def rehearse(self, option, inputs):
        """Runs one microbatch and forgets its gradients. Learns which saved tensors W needs. Returns the outputs,
        seconds by kind of operation, and the bytes that F, RECOMPUTE and I leave."""
        seconds, left, before = {}, {}, self.meters["device"].now
        buffers = {name: each.clone() for name, each in self.module.named_buffers()}
        gradients_before = [(each, each.grad) for each in self.module.parameters()]
        for parameter, _ in gradients_before:
            parameter.grad = None

        def timed(kind, work):
            start = time.perf_counter()
            result = work()
            synchronize(self.device)
            seconds[kind] = time.perf_counter() - start
            left[kind] = self.meters["device"].now - before
            return result

        now, outputs = timed("F", lambda: self.forward(0, 0, inputs, option))
        if option.share > 0:
            timed("OFFLOAD", lambda: now.stash.to_host(option.share))
            timed("RELOAD", lambda: now.stash.to_device(self.device, None))
        if option.is_ahead:
            timed("RECOMPUTE", now.stash.recompute)
        like = tuple(torch.ones_like(each) for each in outputs if each.is_floating_point())
        gradients = self.loss_gradients(now) if self.is_last else like
        timed("I", lambda: self.backward_input(now, gradients))
        timed("W", lambda: self.backward_weight(now))
        self.needed_by_weight[option.name] = now.stash.used.get("W", set())
        for parameter, gradient in gradients_before:
            parameter.grad = gradient
        with torch.no_grad():
            for name, each in self.module.named_buffers():
                each.copy_(buffers[name])
        return outputs, seconds, left


# One rank.


class pipeline:
    """The stages of this rank, and the program that runs them. All processes construct it together, after
    `torch.distributed` has been initialized. `pace`: seconds per unit of the problem's time, if operations are to take
    at least as long as planned."""

    def __init__(self, training, problem, plan, programs, device, pace=None):
        if programs.get("forward_only"):
            raise SystemExit("run_plan.py: the programs have forwards alone, this runs training steps")
        if any("backward" in now for each in programs["programs"] for now in each["instructions"]):
            raise SystemExit("run_plan.py: the programs have pairs, this runs one operation at a time")
        self.rank, self.problem, self.device, self.pace = dist.get_rank(), problem, torch.device(device), pace
        self.stages, self.microbatches = programs["stages"], programs["microbatches"]
        self.program = programs["programs"][self.rank]
        self.meters = {"device": meter(), "host": meter()}
        self.planned = {each["op"]: each["end"] - each["start"] for each in plan["operations"]}
        self.options = self.chosen_options(plan)
        own = [s for s, each in enumerate(problem["stages"]) if each["rank"] == self.rank]
        self.own = {s: stage_runner(training, s, self.stages, self.microbatches, self.device, self.meters) for s in own}
        self.training = training
        parameters = [p for each in self.own.values() for p in each.module.parameters()]
        self.optimizer = training.optimizer(parameters) if hasattr(training, "optimizer") else None
        self.control = dist.new_group(backend="gloo")
        self.groups = {"F": dist.new_group(), "B": dist.new_group()}  # one for activations, one for gradients
        self.connecting = threading.Lock()  # communicators aren't for several threads at once
        is_cuda = self.device.type == "cuda"
        self.streams = {lane: torch.cuda.Stream(self.device) if is_cuda else None for lane in self.program["lanes"]}
        self.learn()
        self.connect()
        self.clock_offset = self.measure_clock()

    def chosen_options(self, plan):
        """The storage option of each stage and microbatch."""
        by_stage = [options_of(each) for each in self.problem["stages"]]
        operations = {each["op"]: each for each in plan["operations"]}
        chosen = {}
        for name, each in operations.items():
            s, kind, m = parts_of(name)
            if kind == "F":
                usual = "offload" if f"{s}OFFLOAD{m}" in operations else "keep"
                chosen[s, m] = by_stage[s][each.get("storage", usual)]
        return chosen

    def learn(self):
        """Rehearses the stages, one after the other, with each option that the plan uses. Every rank gets to know the
        tensors between the stages."""
        self.between = []
        for s, of_problem in enumerate(self.problem["stages"]):
            specification = [None]
            if s in self.own:
                with self.on_lane("compute"):
                    used = {each.name: each for (of, _), each in self.options.items() if of == s}
                    for option in used.values():
                        inputs = self.first_inputs(0, 0) if s == 0 else tuple(
                            torch.zeros(size, dtype=dtype, device=self.device) for size, dtype in self.between[s - 1])
                        outputs, _, _ = self.own[s].rehearse(option, inputs)
                specification = [[(tuple(each.shape), each.dtype) for each in outputs]]
            dist.broadcast_object_list(specification, of_problem["rank"], group=self.control)
            self.between.append(specification[0])
        for each in self.meters.values():
            each.most = each.now

    def connect(self):
        """Connects each pair of ranks that will exchange messages, in one order everywhere. NCCL would otherwise connect
        at the first message, and block the thread that issues it."""
        ranks = [each["rank"] for each in self.problem["stages"]]
        pairs = {(a, b) for a, b in zip(ranks, ranks[1:]) if a != b}
        for group, links in (("F", sorted(pairs)), ("B", sorted((b, a) for a, b in pairs))):
            for sender, receiver in links:
                if self.rank == sender:
                    dist.send(torch.zeros(1, device=self.device), receiver, group=self.groups[group])
                if self.rank == receiver:
                    dist.recv(torch.zeros(1, device=self.device), sender, group=self.groups[group])

    def measure_clock(self):
        """How far this clock is ahead of rank 0's. It counts as 0 if a round trip can't tell, as on one machine."""
        best = (float("inf"), 0.0)
        for r in range(1, dist.get_world_size()):
            for _ in range(ROUND_TRIPS if self.rank in (0, r) else 0):
                if self.rank == 0:
                    dist.recv(torch.zeros(1), r, group=self.control)
                    dist.send(torch.tensor([time.perf_counter()], dtype=torch.double), r, group=self.control)
                else:
                    answer, start = torch.zeros(1, dtype=torch.double), time.perf_counter()
                    dist.send(torch.zeros(1), 0, group=self.control)
                    dist.recv(answer, 0, group=self.control)
                    end = time.perf_counter()
                    best = min(best, (end - start, (start + end) / 2 - answer.item()))
        took, offset = best
        return 0.0 if abs(offset) < took else offset

    def first_inputs(self, step, microbatch):
        return tuple(each.to(self.device) for each in as_tuple(self.training.inputs(step, microbatch)))

    def on_lane(self, lane):
        stream = self.streams[lane]
        return torch.cuda.stream(stream) if stream else contextlib.nullcontext()

    def step(self, number):
        """Runs one step. Returns the mean of this rank's losses, if it has the last stage, and the operations of this
        rank in the order of their starts, as (operation, start, end) in seconds since the step began."""
        instructions = self.program["instructions"]
        self.number, self.cells, self.tensors, self.losses, self.times = number, {}, {}, [], {}
        self.ended = [threading.Event() for _ in instructions]
        self.failure = None
        if self.optimizer:
            self.optimizer.zero_grad()
        began = [None]
        dist.barrier(group=self.control)
        if self.rank == 0:
            began = [time.perf_counter()]
        dist.broadcast_object_list(began, 0, group=self.control)
        self.began = began[0] + self.clock_offset
        others = [each for each in self.streams if each != "compute"]
        lanes = [threading.Thread(target=self.run_lane, args=(each,), daemon=True) for each in others]
        for each in lanes:
            each.start()
        self.run_lane("compute")  # in this thread, for profilers
        for each in lanes:
            while each.is_alive() and not self.failure:
                each.join(1.0)
        if self.failure:
            raise RuntimeError(f"rank {self.rank} failed") from self.failure
        if self.optimizer:
            self.optimizer.step()
        loss = sum(each.item() for each in self.losses) / self.microbatches if self.losses else None
        return loss, sorted(((op, *span) for op, span in self.times.items()), key=lambda each: each[1])

    def run_lane(self, lane):
        try:
            with self.on_lane(lane):
                for i, each in enumerate(self.program["instructions"]):
                    if each["lane"] == lane:
                        self.run_instruction(each)
                        self.ended[i].set()
        except Exception as error:  # the other lanes wait for this one
            self.failure = error
            for each in self.ended:
                each.set()

    def run_instruction(self, now):
        for before in now["after"]:
            self.ended[before].wait()
        if self.failure:
            raise self.failure
        label = "PP:" + label_of(now)
        nvtx = torch.cuda.nvtx.range(label) if self.device.type == "cuda" else contextlib.nullcontext()
        with nvtx, profiler_range(label, self.device):
            start = time.perf_counter()
            if now["kind"] == "exchange":
                self.exchange(now["messages"])
            else:
                self.run_operation(*parts_of(now["op"]))
            synchronize(self.device)
            if "op" in now and self.pace:
                time.sleep(max(0.0, start + self.pace * self.planned[now["op"]] - time.perf_counter()))
            end = time.perf_counter()
        if "op" in now:
            self.times[now["op"]] = (start - self.began, end - self.began)

    def run_operation(self, s, kind, m):
        runner, now = self.own[s], self.cells.get((s, m))
        match kind:
            case "F":
                inputs = self.tensors.pop(f"{s - 1}F{m}") if s > 0 else self.first_inputs(self.number, m)
                now, outputs = runner.forward(self.number, m, inputs, self.options[s, m])
                self.cells[s, m] = now
                if runner.is_last:
                    self.losses.append(outputs[0])
                else:
                    self.tensors[f"{s}F{m}"] = outputs
            case "OFFLOAD":
                now.stash.to_host(self.options[s, m].share)
            case "RELOAD":
                now.stash.to_device(self.device, self.streams["compute"])
            case "RECOMPUTE":
                now.stash.recompute()
            case "W":
                runner.backward_weight(self.cells.pop((s, m)))
            case "I" | "B":
                later = [f"{s + 1}{each}{m}" for each in "IB" if f"{s + 1}{each}{m}" in self.tensors]
                gradients = runner.loss_gradients(now) if runner.is_last else self.tensors.pop(later[0])
                backward = runner.backward_input if kind == "I" else runner.backward
                made = backward(now, gradients)
                if kind == "B":
                    del self.cells[s, m]
                if s > 0:
                    self.tensors[f"{s}{kind}{m}"] = tuple(
                        torch.zeros(size, dtype=dtype, device=self.device) if each is None else each
                        for each, (size, dtype) in zip(made, self.between[s - 1]) if dtype.is_floating_point)

    def exchange(self, messages):
        posted, received = [], []
        for each in messages:
            s, kind, m = parts_of(each["of"])
            group = self.groups["F" if kind == "F" else "B"]
            if each["side"] == "send":
                tensors = tuple(part.contiguous() for part in self.tensors.pop(each["of"]))
                start = dist.isend
            else:
                between = self.between[s if kind == "F" else s - 1]
                tensors = tuple(torch.empty(size, dtype=dtype, device=self.device)
                                for size, dtype in between if kind == "F" or dtype.is_floating_point)
                if self.streams["compute"]:
                    for part in tensors:
                        part.record_stream(self.streams["compute"])
                start = dist.irecv
                received.append((each["of"], tensors))
            # gloo matches by tags, NCCL by the order, which is the same at both ends.
            first_tag = (s * self.microbatches + m) * max(map(len, self.between))
            posted += [dist.P2POp(start, part, each["peer"], group, first_tag + n) for n, part in enumerate(tensors)]
        with self.connecting:
            if len(messages) > 1:
                works = dist.batch_isend_irecv(posted)
            else:
                works = [each.op(each.tensor, each.peer, group=each.group, tag=each.tag) for each in posted]
        for each in works:
            each.wait()
        synchronize(self.device)
        self.tensors.update(received)


def parts_of(operation):
    """(2, "F", 5) of "2F5"."""
    s, kind, m = OPERATION.fullmatch(operation).groups()
    return int(s), kind, int(m)


def label_of(instruction):
    if "op" in instruction:
        return instruction["op"]
    first = instruction["messages"][0]
    towards = "to" if first["side"] == "send" else "from"
    return f"{first['side']} of {first['of']} {towards} rank {first['peer']}"


# Files.


def measured_schedule(problem, options, all_times, unit, saved_bytes):
    operations = []
    for op, start, end in all_times:
        s, kind, m = parts_of(op)
        operations.append({"op": op, "start": start / unit, "end": end / unit}
                          | ({"storage": options[s, m].name} if kind == "F" else {}))
    return {"format": "optpipe.schedule/2", "problem": problem.get("name", ""), "method": "measured in PyTorch",
            "x-saved_bytes": saved_bytes, "operations": sorted(operations, key=lambda each: each["start"])}


def training_of(path):
    specification = importlib.util.spec_from_file_location("training", path)
    training = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(training)
    return training


def read_json(path):
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))


def file_of_step(path, number, steps):
    """step-07.json for step.json, if there are several steps."""
    path = pathlib.Path(path)
    return path if steps == 1 else path.with_stem(f"{path.stem}-{number + 1:0{len(str(steps))}}")


def seconds_per_unit(problem, given):
    unit = given or TIME_UNITS.get(problem.get("time_unit", "ms"))
    if unit is None:
        raise SystemExit(f"run_plan.py: time_unit is {problem['time_unit']!r}; give --time-unit in seconds")
    return unit


def run_rank(rank, options, meeting=None):
    """One process. `meeting` is a file through which the processes of one machine find each other."""
    problem, plan, programs = map(read_json, (options.problem, options.plan, options.programs))
    unit = seconds_per_unit(problem, options.time_unit)
    device = torch.device("cpu")
    if torch.cuda.device_count() > 0 and options.device != "cpu":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank)))
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    where = {"init_method": f"file://{meeting}", "rank": rank, "world_size": problem["ranks"]} if meeting else {}
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", **where)
    own = pipeline(training_of(options.model), problem, plan, programs, device, unit if options.pace else None)
    with profiler_for(options.trace, dist.get_rank()):
        for number in range(options.steps):
            loss, times = own.step(number)
            most = own.meters["device"].most
            all_of = [None] * problem["ranks"]
            dist.all_gather_object(all_of, (loss, times, most), group=own.control)
            if dist.get_rank() == 0:
                losses = [each for each, _, _ in all_of if each is not None]
                end = max(times[-1][2] for _, times, _ in all_of)
                print(f"step {number + 1}: {end / unit:.4g} {problem.get('time_unit', 'ms')}, loss {losses[0]:.6g}, "
                      f"saved bytes {[most for _, _, most in all_of]}", flush=True)
                if options.out:
                    document = measured_schedule(problem, own.options, sum((each for _, each, _ in all_of), []), unit,
                                                 [most for _, _, most in all_of])
                    file_of_step(options.out, number, options.steps).write_text(json.dumps(document, indent=1))
    dist.destroy_process_group()


def profiler_range(label, device):
    """A range in PyTorch's profiler. On CPUs it is of the kind that never waits for Python's lock, and so has the times
    that the runtime measures; the other kind also shows the range's work on a GPU."""
    is_cuda = device.type == "cuda"
    return torch.profiler.record_function(label) if is_cuda else torch._C._profiler._RecordFunctionFast(label)


@contextlib.contextmanager
def profiler_for(path, rank):
    """A trace of each rank, as trace-0.json for trace.json."""
    if not path:
        yield
        return
    everything = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(experimental_config=everything) as profiler:
        yield
    path = pathlib.Path(path)
    profiler.export_chrome_trace(str(path.with_stem(f"{path.stem}-{rank}")))


def run(options):
    if len(options.files) == 1:
        options.files = [pathlib.Path(options.files[0]) / name for name in FILES]
    if len(options.files) != len(FILES):
        raise SystemExit("run_plan.py: run takes a folder, or a problem, a plan and programs")
    options.problem, options.plan, options.programs = options.files
    if "RANK" in os.environ:  # torchrun
        return run_rank(int(os.environ["RANK"]), options)
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (options, f"{folder}/meeting"), nprocs=read_json(options.problem)["ranks"])


def measure_stage(module, inputs, loss=None, is_first=False, recomputed=None, rank=0, repeats=5):
    """Measures one stage: forward, backward for the input and for the weights, saved bytes, recomputation and transfers
    by storage option. Returns the stage for a problem file, in ms and GB, and the outputs, which are the inputs of the
    next stage.

    `inputs`: a tensor, or a tuple of them. `loss(*outputs)`: of the last stage. `is_first`: the inputs need no
    gradient. `recomputed`: {storage option: [names of submodules]}, as in MODEL.py."""
    own = types.SimpleNamespace(module=lambda _: module, loss=lambda *outputs: loss(*outputs[:-2]),
                                recomputed=recomputed or {})
    number = 0 if is_first else 1
    inputs = as_tuple(inputs)
    stages = number + (1 if loss else 2)
    runner = stage_runner(own, number, stages, 1, inputs[0].device, {"device": meter(), "host": meter()})
    try:
        outputs, entry = measured_stage(runner, inputs, rank, repeats)
    finally:
        runner.release()
    return entry, outputs


def measured_stage(runner, inputs, rank, repeats):
    """A stage for a problem file, in ms and GB, and its outputs."""
    keep = {"name": "keep"}
    offload = {"name": "offload", "transfer_size": 1.0, "held": 1.0}
    again = [{"name": name, "recompute": 1.0} for name in {"recompute": None, **runner.recomputed}]
    sizes, times = {}, {}
    for each in [keep, offload, *again]:
        option = storage_option(each, 1.0)
        runner.rehearse(option, inputs)  # learns what W needs
        samples = [runner.rehearse(option, inputs) for _ in range(repeats)]
        outputs, _, sizes[each["name"]] = samples[0]
        kinds = samples[0][1]
        times[each["name"]] = {k: max(1e-6, 1e3 * statistics.median(s[k] for _, s, _ in samples)) for k in kinds}
    of_keep, transfer = times["keep"], times["offload"]
    activation = max(size for each in sizes.values() for kind, size in each.items() if kind in ("F", "RECOMPUTE"))
    gigabytes = 1e-9
    storage = [keep, {"name": "offload", "transfer_size": gigabytes * activation, "offload": transfer["OFFLOAD"],
                      "reload": transfer["RELOAD"]}]
    storage += [{"name": each["name"], "held": gigabytes * sizes[each["name"]]["F"],
                 "recompute": times[each["name"]]["RECOMPUTE"]} for each in again]
    return outputs, {"rank": rank, "forward": of_keep["F"], "backward_input": of_keep["I"],
                     "backward_weight": of_keep["W"], "activation": gigabytes * activation,
                     "weight_stash": gigabytes * max(each["I"] for each in sizes.values()), "storage": storage}


def measure(options):
    """Writes a problem with the costs of this model on this device. Each stage is measured by itself."""
    training, device = training_of(options.model), torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ranks = options.ranks
    stages = ranks if options.placement == "linear" else 2 * ranks
    rank_of = {"linear": lambda s: s, "loop": lambda s: s % ranks, "v": lambda s: min(s, stages - 1 - s)}
    if device.type == "cpu":
        torch.set_num_threads(1)
    problem = {"format": "optpipe.problem/2", "name": pathlib.Path(options.model).stem, "time_unit": "ms",
               "memory_unit": "GB", "ranks": ranks, "microbatches": options.microbatches, "p2p": options.p2p,
               "memory_limit": options.memory_limit, "stages": []}
    tensors = tuple(each.to(device) for each in as_tuple(training.inputs(0, 0)))
    for s in range(stages):
        meters = {"device": meter(), "host": meter()}
        runner = stage_runner(training, s, stages, options.microbatches, device, meters)
        tensors, entry = measured_stage(runner, tensors, rank_of[options.placement](s), options.repeats)
        problem["stages"].append(entry)
    pathlib.Path(options.out).write_text(json.dumps(problem, indent=1))


def program_optpipe(given):
    """The program as it was named, or on the path, or in this checkout's build."""
    built = pathlib.Path(__file__).resolve().parent / "../../build/release/bin/optpipe"
    for each in [given] if given else ["optpipe", str(built)]:
        if found := shutil.which(each):
            return found
    raise SystemExit(f"run_plan.py: there is no program {given or 'optpipe'}; build it by `cmake -P cmake/demo.cmake`, or "
                     "name it by --optpipe")


def plan(options):
    """From a model to a plan: writes problem.json, plan.json and programs.json into a folder."""
    program = program_optpipe(options.optpipe)
    folder = pathlib.Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    problem, planned, programs = (folder / name for name in FILES)
    options.out = problem
    measure(options)
    # The lanes of NCCL's messages.
    lanes = ["--messages", "per-direction", "--receives", "when-due"] if torch.cuda.is_available() else []
    for command in (["plan", problem, "--time-limit", str(options.time_limit), "--out", planned],
                    ["lower", problem, planned, "--out", programs, *lanes]):
        status = subprocess.run([program, *command]).returncode
        if status != 0:
            sys.exit(status)


def add_measure(one):
    one.add_argument("model")
    one.add_argument("--ranks", type=int, required=True)
    one.add_argument("--microbatches", type=int, required=True)
    one.add_argument("--placement", choices=["linear", "loop", "v"], default="linear")
    one.add_argument("--memory-limit", type=float, help="GB for stashes on each rank (default: unlimited)")
    one.add_argument("--p2p", type=float, default=0.0, help="ms of a message between two ranks")
    one.add_argument("--repeats", type=int, default=5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run", help="train with a plan")
    one.add_argument("model")
    one.add_argument("files", nargs="+", help="the folder that `plan` has written; or problem, plan and programs")
    one.add_argument("--steps", type=int, default=1)
    one.add_argument("--out", help="the measured schedule; of several steps, one file each")
    one.add_argument("--trace", help="a trace of PyTorch's profiler for each rank")
    one.add_argument("--device", choices=["cpu", "cuda"], help="default: the GPUs if there are any")
    one.add_argument("--time-unit", type=float, help="seconds per unit of the problem's time")
    one.add_argument("--pace", action="store_true", help="let each operation take at least its planned time")
    one.set_defaults(do=run)
    one = commands.add_parser("measure", help="write the problem of a model")
    add_measure(one)
    one.add_argument("--out", required=True)
    one.set_defaults(do=measure)
    one = commands.add_parser("plan", help="measure a model and plan it")
    add_measure(one)
    one.add_argument("--optpipe", help="the program optpipe (default: on the path, or in this checkout's build)")
    one.add_argument("--time-limit", type=float, default=10.0, help="seconds for the planner")
    one.add_argument("--out", default=".", help="the folder for problem.json, plan.json and programs.json")
    one.set_defaults(do=plan)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
