# The page: answer(<title> <text> [<step>...]). Numbers stand in the tables of the steps alone.
answer("How large are the models, and how does the gap fall?"
"`optpipe plan` doesn't depend on one model of the whole problem: on small problems the mixed-integer model and constraint
programming prove, on large ones local search improves, and bounds come from the structure. The first table is what
a model of the whole problem would have. In the second each column is what is known after so many seconds.

![The mean gap of groups of problems over time](gap.svg)"
sizes planner planner-long)

answer("What does the constructive start reach alone, what does each part of the search add, and what is the MILP's share?"
"The column `adaptive` of the tables of planning is the constructive start alone. The first table here has the published
builders without a search, with each strategy beside them, and with all, over time: `milp` is branch and bound over LP
relaxations, `cp` constraint programming. The second leaves out one strategy at a time, on problems drawn at random too. A
problem counts as `worse` where the best of three plans without the strategy is longer than the worst of three with all, and as
`better` where it is the other way round. 147 problems with 3 s each, in a run of their own: [strategies](strategies.md)."
each-alone without-each)

answer("What do other solvers reach?"
"CBC, GLPK, HiGHS, SCIP and CP-SAT, as far as they are installed, on the same models and on the problems themselves. Then our
solver on models that it is given as such: 34 linear programs of netlib, 9 small mixed-integer programs of MIPLIB, 26 plain big-M
models of pipelines ([where they are from](../../tests/data/milp/README.md)), each beside CBC and GLPK and then beside HiGHS and SCIP,
and sixty made from seeds. All 59 problems in an earlier run: [others](others.md)."
others linear integer pipeline beside-lp beside-mip beside-pipeline seeded second-thread)

answer("What does a first program cost?"
"The methods on one problem, as the program shows them, and the compiler's time for README's first program."
compare first-program)

answer("What do others publish for their models?"
"Layers as others profiled them, in `bench/published`: Nemotron-H by AdaPtis' authors, DeepSeek-V4 in AMD's Primus. All times but
the one that is marked are simulated. 1F1B runs in the layout of the source; `optpipe partition` divides the same layers anew, in the
memory of that layout and, for DeepSeek-V4, in a third more. A unit of memory is the stash of one layer. DeepSeek-V4 recomputes every
forward, and every backward is one operation. AdaPtis' memory isn't published."
published)

answer("Are the baselines fair where memory is tight?"
"A published schedule that doesn't fit is also planned for more memory and then offloaded (`over-memory`), and with one storage
option for all microbatches where stages may recompute: `uniform` in the second table, with the builders in the manner of AdaPipe
and Mario beside the others. The first table has what each method reaches as published. SPPO and SSDTrain aren't among them.

The second table: each problem of `tests/data/storage` is planned without recomputation, without transfers, and with all its options;
`idle` is the objective less the work, as a share of the better of `uniform` and `offload only`. Where a problem has no transfers,
`recompute only` and `all` are the same question: they show how much two runs of ten seconds differ.

![A plan that keeps, offloads and recomputes](../../examples/pictures/storage.svg)

The third table asks the same for models, ranks, microbatches, memory and links that random numbers chose. The last tables ask it
for other memory limits: every device gets the same share of the largest peak of 1F1B, and a dash is no schedule.

![llama2-7b on 4 devices](sweep_store-llama2-7b-4k-p4.svg)

![llama2-13b on 8 devices](sweep_store-llama2-13b-4k-p8-tight.svg)

![4 devices, 8 microbatches](sweep_store-p4-m8-k150.svg)"
methods storage drawn sweep)

answer("How robust are plans?"
"Every duration varies by 10 % (standard deviation), a quarter of its variance in common on a rank. Each problem is planned without
regard to noise, from that plan on for the 95th percentile of the step time, and both plans run in 2000 random steps that played no
part in planning. `price`: what the robust plan loses without noise; `gain`: what its percentile is lower."
robust)

answer("Does switching plans disturb training?"
"All ranks take a new plan between the same two steps, or none does. This is tested: random handovers and ranks that are killed in
each state of one (`tests/mpi`), gradients over a switch (`tests/execution`), long runs with noise and no switch (`tests/online`).
A training run on threads is measured, with links and ranks that change their speed on the way. Convergence over hundreds of steps of
a large model on GPUs is not."
online)

answer("How long does profiling take?"
"Profiling is part of training: `online_run` measures some of the steps that run anyway. How long a 14B model on 16 GPUs takes is
not measured: that needs the GPUs. Durations of F, I and W in the problem files come from published profiles (`zb-*`), from
closed formulas (`transformer`), or are made up (`unit-*`). On a GPU only a small language model was profiled, on virtual ranks:
its problems are the files `gpu-*-problem.json` beside this page.")

answer("Tensor parallelism, ZeRO, MoE, real models?"
"Tensor parallelism changes durations and sizes, and is in the problems with `tp8` in their names. Experts change them too: layers and
widths of Llama 2 and 3, Qwen3, Mixtral and DeepSeek-V3 stand with their sources in `optpipe/pipeline/model_shapes.hpp`, and the
last table below plans them. Of ZeRO a problem can express stage 1, which is memory alone; gathers of stages 2 and 3 only as time of
the operations."
models)

answer("Sequences of varying length?"
"Can't be done yet: microbatches of one stage cost the same.")

answer("What is new over Zero Bubble's ILP?"
"Transfers with links and duplex, memory on the host, storage options per microbatch, unequal limits and placements, and a bound
on all schedules that is proven. The model without offloading is theirs in other words: what each strengthening is worth is
measured by `bench_formulation`.")

answer("Does the constructive start help where memory isn't tight?"
"The rows `zb-*-mem200`, `unit-*-mem100` and `v-unit-*` of this table: `adaptive` beside `published` and the bound."
planner)

answer("How much memory does each rank hold?"
"A plan uses what the limit allows on more ranks than the published schedules do."
memory)

answer("Which is the largest model in fixed memory, and what does the microbatch size do?"
"Both by arithmetic: smaller microbatches leave more room and shorter bubbles, and here their kernels are as efficient as large
ones, which on a device they aren't. `keep` is what schedules reach that neither offload nor recompute. In the last table layers
are divided among the stages by `plan_partition`, in the time that the plan for layers divided evenly takes."
models)

answer("A cold and a warm cache?"
"A plan from the cache that is proven ends the search at once; from another the search goes on."
caches)

answer("How near are bounds, and how large can problems be?"
"Bounds without a search, and 64 ranks × 1024 microbatches."
bounds large)

answer("What do building and running a schedule cost?"
"`x simulate` is against evaluating the schedule once; `planned` is a step on threads, as long as its links and operations of 1 ms
make it, and what it takes longer than simulated."
builders execution)
