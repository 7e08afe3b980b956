# What is measured, cheap steps first: step(<name> <minutes> <seconds of a plan, or 0> <command>...)
step(sizes 1 0 bench_formulation --sizes)
step(bounds 1 0 bench_bounds)
step(methods 1 0 bench_plans)
step(caches 2 10 cmake -DTABLE=caches -DSECONDS={s} -P cmake/results/plans.cmake)
step(published 3 60 cmake -DTABLE=published -DSECONDS={s} -P cmake/results/plans.cmake)
step(compare 1 0 build/release/bin/optpipe compare examples/data/llama2-7b-4k-p4.json)
step(first-program 2 0 bench/first_program.py --build build/release)
step(memory 1 10 cmake -DTABLE=memory -DSECONDS={s} -P cmake/results/plans.cmake)
step(robust 2 4 bench_robust --time {s})
step(storage 8 10 bench_storage --time {s} --threads 2)
step(drawn 8 10 bench_storage --time {s} --threads 2 --drawn 16)
step(sweep 6 5 bench_storage --time {s} --threads 2 --sweep 8 --only store-llama2-7b --only store-llama2-13b-4k-p8-tight
     --only store-p4-m8 --svg bench/results)
step(models 5 5 bench_model_sizes --time {s} --threads 2)
step(planner 4 10 bench_planner --time {s} --threads 2)
# Each strategy beside the builders, and all but each; the second does deterministic work, whatever else the machine does.
step(each-alone 15 3 bench_planner --each-alone --time {s} --threads 2)
step(without-each 40 0 bench_planner --without-each --random 24 --threads 1)
step(format3 5 10 bench_format3 --time {s} --threads 2 --svg bench/results)
step(planner-long 10 30 bench_planner --time {s} --threads 2 --svg bench/results/gap.svg)
step(large 6 30 bench_planner --large --time {s} --threads 2)
step(linear 2 0 bench_milp tests/data/milp/lp)
step(integer 10 20 bench_milp --time-limit {s} tests/data/milp/mip)
step(pipeline 5 5 bench_milp --time-limit {s} tests/data/milp/pipeline)
step(second-thread 10 10 bench_milp --scaling --threads 2 --time-limit {s})
step(seeded 10 10 bench/beside_others.py --bench build/release/bin/bench_milp --limit {s} --results build/results/seeded.jsonl
     build/results/seeded)
step(beside-lp 1 20 bench/beside_others.py --bench build/release/bin/bench_milp --limit {s} --results build/results/lp.jsonl
     tests/data/milp/lp)
step(beside-mip 2 20 bench/beside_others.py --bench build/release/bin/bench_milp --limit {s} --results build/results/mip.jsonl
     tests/data/milp/mip)
step(beside-pipeline 5 5 bench/beside_others.py --bench build/release/bin/bench_milp --limit {s}
     --results build/results/pipeline.jsonl tests/data/milp/pipeline)
step(online 8 0 bench_online --out bench/results)
step(execution 1 0 bench_execution --benchmark_counters_tabular=true)
step(builders 5 0 bench_builders --benchmark_counters_tabular=true)
# One problem of each kind; bench/results/others.md has all 59.
step(others 10 5 bench/others.py --program build/release/bin/optpipe --time-limit {s},{s} --threads 1
     --results build/results/others.jsonl --only llama2-7b --only gpt-10.5b-8k --only offload-p3-m6-mem075-k100
     --only offload-p4-m8-mem050-k100 --only po-d4-v4 --only skew-p4 --only unit-p4-m8-mem075 --only v-unit-p4-m12-k6
     --only zb-1.5b-p8-m24-mem100)
