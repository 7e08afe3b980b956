# The page: answer(<title> <text> [<step>...]). Numbers stand in the tables of the steps alone.
answer("How large are the models, and how does the gap fall?"
"`optpipe plan` doesn't depend on one model of the whole problem. On small problems, the mixed-integer model and constraint
programming find proofs. On large problems, local search improves plans, and bounds come from the structure of the problem.
The first tables have the size of a model of the whole problem. The others have objective and bound after some seconds.

![The mean gap of groups of problems over time](gap.svg)"
sizes planner planner-long)

answer("What does the constructive start reach alone, what does each part of the search add, and what is the MILP's share?"
"In the tables of planning, the column `adaptive` is the constructive start alone. The first table here has the published
builders over time: without a search, with one strategy added, and with all strategies. `milp` is branch and bound over LP
relaxations, and `cp` is constraint programming. The second table leaves out one strategy at a time; some of its problems are
drawn at random. A problem counts as `worse` if the best of three plans without the strategy is longer than the worst of three
plans with all strategies, and as `better` in the opposite case. Both tables have `windows`, `v-patterns` and `over-memory`,
which were removed later. Another run had 147 problems with 3 s each: [strategies](strategies.md)."
each-alone without-each)

answer("What do other solvers reach?"
"The first table has CBC, GLPK, HiGHS, SCIP and CP-SAT, as far as they are installed, on the same models and on the problems
themselves. The other tables have our solver on 34 linear programs of netlib, on 9 small mixed-integer programs of MIPLIB, and
on 26 plain big-M models of pipelines ([where they are from](../../tests/data/milp/README.md)): first beside CBC and GLPK, then
beside HiGHS and SCIP. The next table has sixty models made from seeds, and the last one has the gain from a second thread. An
earlier run had all 59 problems: [others](others.md)."
others linear integer pipeline beside-lp beside-mip beside-pipeline seeded second-thread)

answer("What does a first program cost?"
"The program's table of all methods on one problem, and the compiler's time for README's first program."
compare first-program)

answer("What do others publish for their models?"
"AdaPtis' authors profiled the layers of Nemotron-H. AMD profiled the layers of DeepSeek-V4, in Primus. Both are in
`bench/published`. All times are simulated, except the one that is marked as measured. 1F1B runs in the layout of the source. `optpipe
partition` divides the same layers anew, in the memory that 1F1B needs in that layout and, for DeepSeek-V4, also in a third
more. A unit of memory is the stash of one layer. DeepSeek-V4 recomputes every forward, and every backward is one operation.
AdaPtis' memory isn't published."
published)

answer("Are the baselines fair where memory is tight?"
"If stages may recompute, a published schedule that doesn't fit is also planned with one storage option for all microbatches:
`uniform` in the second table, which includes builders in the manner of AdaPipe and Mario. The first table has each method as
published. SPPO and SSDTrain aren't among the methods.

For the second table, each problem of `tests/data/storage` is planned without recomputation, without transfers, and with all
its options. `idle` is the objective minus the work, as a share of the same difference for the better of `uniform` and
`offload only`. If a problem has no transfers, `recompute only` and `all` are the same search: the two columns show how much two
runs of ten seconds differ.

![A plan that keeps, offloads and recomputes](../../examples/pictures/storage.svg)

The third table has the same columns for problems whose models, ranks, microbatches, memory and links are random. The last
tables have other memory limits: every device gets the same share of the largest peak of 1F1B. A dash means that no schedule
was found.

![llama2-7b on 4 devices](sweep_store-llama2-7b-4k-p4.svg)

![llama2-13b on 8 devices](sweep_store-llama2-13b-4k-p8-tight.svg)

![4 devices, 8 microbatches](sweep_store-p4-m8-k150.svg)"
methods storage drawn sweep)

answer("How robust are plans?"
"Every duration varies by 10 % (standard deviation); all operations of a rank share a quarter of the variance. Each
problem is first planned without regard to noise (the nominal plan). From that plan on, it is planned for the 95th
percentile of the step time (the robust plan). Both plans then run in 2000 random steps that weren't used for planning.
`price` is how much longer the robust plan is without noise; `gain` is how much lower its percentile is."
robust)

answer("Does switching plans disturb training?"
"Either all ranks take a new plan after the same step, or no rank takes it. The tests have random handovers and ranks that are
killed in each state of a handover (`tests/mpi`), gradients over a switch (`tests/execution`), and long runs with noise and no
switch (`tests/online`). A training run on threads was measured, in which links and ranks change their speed. Convergence of a
large model on GPUs over hundreds of steps wasn't measured."
online)

answer("How long does profiling take?"
"Profiling is part of training: `online_run` measures some of the steps that run anyway. Nobody has measured how long it takes
for a 14B model on 16 GPUs, as we don't have these GPUs. In the problem files, durations of F, I and W come from published
profiles (`zb-*`) or from closed formulas (`transformer`), or are made up (`unit-*`). On a GPU, only a small language model was
profiled, on virtual ranks; its problems are the files `gpu-*-problem.json` beside this page.")

answer("Tensor parallelism, ZeRO, MoE, real models?"
"Tensor parallelism changes durations and sizes, as in the problems with `tp8` in their names. Experts change both as well.
`optpipe/pipeline/model_shapes.hpp` has the layers and widths of Llama 2 and 3, Qwen3, Mixtral and DeepSeek-V3 with their sources;
the last table below has plans for these models. A problem can express stage 1 of ZeRO, which only saves memory. It can express
the gathers of stages 2 and 3 only as a part of the time of operations."
models)

answer("Sequences of varying length, slices, models that aren't chains?"
"A problem can have microbatches that differ, sequences that are cut into slices, frozen stages, several losses, skip
connections, and a vocabulary split over the ranks. `tests/data/format3` has such problems. `published` is the shortest published
order that fits the memory, where there is one. `best known` is the best schedule of others' searches: a grid of list
schedulers, a local search, and CP-SAT on small problems.

![Steps as multiples of the bound](format3.svg)

A frozen vision encoder and a language model:

![A plan with a frozen vision encoder](format3_vision.svg)

Two sequences, each in two slices of equal length:

![A plan of slices](format3_slices.svg)

In the last table, half of a sequence's forward is attention. Slices of equal length then gain nothing with Seq1F1B, as the last
slices of a sequence take longer than the first. Slices of equal time (`equal_time_slices`) are shorter, the later they come.
Plans have the memory that Seq1F1B holds with slices of equal length.

For microbatches that change from step to step, `bench_step_plans` compares plans made in 0.1 s, from a plan of another
draw, with plans made in 10 s.

What pairs gain if the memory is scarce, and what CP-SAT proves about it, is on [a page of its own](scarce_pairs.md)."
format3)

answer("What is new over Zero Bubble's ILP?"
"The model adds transfers with links and duplex, memory on the host, storage options per microbatch, unequal limits and
placements, and a proven bound on all schedules. Without offloading, the model is equivalent to theirs. `bench_formulation` measures the
worth of each strengthening.")

answer("Does the constructive start help where memory isn't tight?"
"The rows `zb-*-mem200`, `unit-*-mem100` and `v-unit-*` of this table have `adaptive` beside `published` and the bound."
planner)

answer("How much memory does each rank hold?"
"Plans use all memory of the limit on more ranks than published schedules do."
memory)

answer("Which is the largest model in fixed memory, and what does the microbatch size do?"
"The tables answer both by arithmetic. Smaller microbatches leave more memory and make bubbles shorter. The arithmetic assumes
that kernels are as efficient for small microbatches as for large ones, which isn't so on a device. `keep` is the best schedule
that neither offloads nor recomputes. In the last table, `plan_partition` divides the layers among the stages; it has as much
time as the plan for layers divided evenly."
models)

answer("A cold and a warm cache?"
"If the plan from the cache is proven optimal, the search ends at once. Otherwise, it goes on from that plan."
caches)

answer("How near are bounds, and how large can problems be?"
"The first table has bounds without a search, and the second has problems of 64 ranks × 1024 microbatches."
bounds large)

answer("What do building and running a schedule cost?"
"`x simulate` is the time of building a schedule, relative to simulating it once. `planned` is a step on threads with links
and operations of 1 ms, and by how much it takes longer than simulated."
builders execution)
