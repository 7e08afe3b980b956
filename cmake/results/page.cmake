# The page: answer(<title> <text> [<step>...]). Numbers stand in the tables of the steps alone.
answer("How large are the models, and how does the gap fall?"
"`optpipe plan` doesn't depend on one model of the whole problem: on small problems the mixed-integer model and constraint
programming prove, on large ones windows and local search improve, and bounds come from the structure. The first table is what
a model of the whole problem would have. In the second each column is what is known after so many seconds."
sizes planner planner-long)

answer("What does the constructive start reach alone, what does each part of the search add, and what is the MILP's share?"
"The column `adaptive` of every table is the constructive start alone. Then each strategy alone beside the published builders,
and all but one of them. The row of a problem in `without-milp` beside that in `planner` is the share of branch and bound over LP
relaxations."
planner ${alone} ${without})

answer("What do other solvers reach?"
"CBC, GLPK, HiGHS, SCIP and CP-SAT, as far as they are installed, on the same models and on the problems themselves. Then our
solver on models that aren't pipelines. Earlier runs with their comments: [others](others.md), [the solver](milp.md), [models from
seeds](milp_seeded.md)."
others linear integer pipeline second-thread)

answer("Are the baselines fair where memory is tight?"
"A published schedule that doesn't fit is also planned for more memory and then offloaded (`over-memory`), and with one storage
option for all microbatches where stages may recompute: `one option for all` in the second table, with the builders in the
manner of AdaPipe and Mario beside the others. The first table has what each method reaches as published. SPPO and SSDTrain
aren't among them. The last tables are the same question for other memory limits."
methods storage sweep)

answer("How robust are plans?"
"Every duration varies at random, in part in common on a rank. `price`: what planning for a percentile costs without noise;
`gain`: what it brings with it."
robust)

answer("Does switching plans disturb training?"
"All ranks take a new plan between the same two steps, or none does. This is tested, not measured here: random handovers and ranks
that are killed in each state of one (`tests/mpi`), gradients over a switch (`tests/execution`), long runs with noise and no
switch (`tests/online`). Convergence over hundreds of steps of a large model on GPUs is not measured.")

answer("How long does profiling take?"
"Profiling is part of training: `online_run` measures some of the steps that run anyway. How long a 14B model on 16 GPUs takes is
not measured: that needs the GPUs. Durations of F, I and W in the problem files come from published profiles (`zb-*`), from
closed formulas (`transformer`), or from `optpipe profile` for measured ones; nothing here was profiled on a GPU.")

answer("Tensor parallelism, ZeRO, MoE, real models?"
"Tensor parallelism changes durations and sizes, and is in the problems with `tp8` in their names. Llama 2 and 3 and GPT shapes
are among the problems. Qwen, Mixtral and DeepSeek-V3 are not, nor ZeRO, whose gathers a problem can't express but as time of the
operations."
planner)

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
ones, which on a device they aren't. `keep` is what schedules reach that neither offload nor recompute."
models)

answer("A cold and a warm cache?"
"A plan from the cache that is proven ends the search at once; from another the search goes on."
caches)

answer("How near are bounds, and how large can problems be?"
"Bounds without a search, and 64 ranks × 1024 microbatches."
bounds large)
