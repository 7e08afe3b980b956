#!/usr/bin/env bash
# Runs everything that needs a GPU, on one machine, in one call of less than nine minutes. It builds the benchmarks by the
# preset `cuda`, runs each part under a time limit of its own, and writes all results, also failures, to
#
#     RESULTS/gpu-<name of the GPU>-<date>.json and .md, and the measured problems beside them
#
# (with `--parts`: <date>-parts).
#
#     bench/gpu/run.sh [--results DIR] [--parts NAME,...] [--seconds N] [--build-only | --built]
#
# Defaults: RESULTS is bench/results, all parts are run, and N is 525, which is enough for all. `--build-only` builds on a
# machine without a GPU. `--built` runs these programs: it needs only build/cuda/bin and the shared libraries.
#
# The script needs no network, and no packages except a C++ compiler, CMake and the CUDA Toolkit. The planner is included if
# Eigen and oneTBB are installed, tests of two processes if NCCL is, and plans in PyTorch if the Python that OPTPIPE_PYTHON
# names (by default python3) has torch for CUDA, also with `--built`. These plans come last, and alone with
# `--parts libtorch,libtorch_example,run_plan`. The results list the parts that were left out. The exit status is 0 if all
# went well, 1 if a part failed, and 2 if something is missing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2

all_seconds=525
results=bench/results
parts=
mode=all
command=bench/gpu/run.sh # without where results go
usage() {
    echo "usage: bench/gpu/run.sh [--results DIR] [--parts NAME,...] [--seconds N] [--build-only | --built]" >&2
    exit 2
}
while (($# > 0)); do
    case $1 in
    --results | --parts | --seconds)
        [[ -n "${2:-}" ]] || usage
        case $1 in
        --results) results=$2 ;;
        --parts) parts=,$2, ;;
        --seconds) all_seconds=$2 ;;
        esac
        [[ $1 == --results ]] || command+=" $1 $2"
        shift 2
        ;;
    --build-only | --built)
        [[ $mode == all ]] || usage
        mode=${1#--}
        command+=" $1"
        shift
        ;;
    *) usage ;;
    esac
done
[[ $all_seconds =~ ^[1-9][0-9]*$ ]] || usage

# Lists everything that is missing.
export PATH=$PATH:/usr/local/cuda/bin
missing=()
if [[ $mode != build-only ]]; then
    command -v nvidia-smi >/dev/null && gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
    [[ -n "${gpu:-}" ]] || missing+=("a GPU: nvidia-smi shows none")
fi
generator=
if [[ $mode != built ]]; then
    command -v nvcc >/dev/null || missing+=("nvcc: the CUDA Toolkit, in PATH or /usr/local/cuda")
    command -v g++ >/dev/null || missing+=("g++, 12 or later")
    command -v cmake >/dev/null || missing+=("cmake, 3.25 or later")
    if command -v ninja >/dev/null; then
        generator=Ninja
    elif command -v make >/dev/null; then
        generator="Unix Makefiles"
    else
        missing+=("ninja or make")
    fi
fi
if ((${#missing[@]} > 0)); then
    printf 'missing: %s\n' "${missing[@]}" >&2
    exit 2
fi

# Where PyTorch's CMake files are, if it is here.
python=${OPTPIPE_PYTHON:-python3}
torch=$("$python" -c 'import torch; print(torch.version.cuda and torch.utils.cmake_prefix_path or "")' 2>/dev/null)

# The programs, and the commit that they were built from.
readonly bin=build/cuda/bin
build() {
    local with_torch=(-DOPTPIPE_BUILD_EXAMPLES=OFF)
    [[ -z $torch ]] ||
        with_torch=(-DOPTPIPE_BUILD_EXAMPLES=AUTO -DOPTPIPE_WITH_LIBTORCH=AUTO -DCMAKE_PREFIX_PATH="$torch")
    # Warnings of another compiler than the project's are no reason to measure nothing.
    cmake --fresh --preset cuda -G "$generator" -DCMAKE_CXX_FLAGS=-ffp-contract=off -DOPTPIPE_BUILD_TESTS=OFF \
        "${with_torch[@]}" -DOPTPIPE_BUILD_BENCH=AUTO &&
        cmake --build build/cuda --target bench_gpu -j "$(nproc)" &&
        (git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown) >build/cuda/bin/commit
}
if [[ $mode == build-only ]]; then
    build
    exit
fi
if [[ $mode == built && ! -e $bin/commit ]]; then
    echo "nothing was built: there is no $bin/commit" >&2
    exit 2
fi

mkdir -p "$results" || exit 2
today=$(date -u +%F)
slug=$(tr '[:upper:] ' '[:lower:]-' <<<"$gpu" | tr -cd 'a-z0-9-')
prefix=$results/gpu-$slug-$today${parts:+-parts}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

quoted() { # a JSON string
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\t'/ }
    printf '"%s"' "${text//$'\n'/\\n}"
}
meaning() { # of an exit status
    case $1 in
    0) echo "all well" ;;
    1) echo "a check failed" ;;
    2) echo "couldn't run" ;;
    124 | 137) echo "took too long and was ended" ;;
    *) echo "ended with status $1" ;;
    esac
}

unknown=$parts # names that no part has had so far
is_wanted() {
    [[ -z $parts || $1 == build || $parts == *,$1,* ]] || return 1
    unknown=${unknown/,$1,/,}
}

parts_json=()
parts_markdown=()
failed=0
# part NAME SECONDS COMMAND...: runs the command, which leaves its result in $work/NAME.{jsonl,md}.
part() {
    local name=$1 limit=$2 begin=$SECONDS status
    is_wanted "$name" || return 0
    shift 2
    local shown=${*//$work/OUT}
    shown=${shown/#"$python" /python }
    local left=$((all_seconds - SECONDS))
    if ((left < 10)); then
        status=124
        echo "no time was left" >"$work/$name.log"
    else
        echo "== $name"
        timeout -k 5 $((limit < left ? limit : left)) "$@" >"$work/$name.log" 2>&1
        status=$?
    fi
    local seconds=$((SECONDS - begin))
    echo "$name: $(meaning $status), $seconds s"
    ((status == 0)) || failed=1
    parts_json+=("{\"part\": $(quoted "$name"), \"status\": $status, \"meaning\": $(quoted "$(meaning $status)"), \
\"seconds\": $seconds, \"command\": $(quoted "$shown"), \"rows\": [$(paste -sd, "$work/$name.jsonl" 2>/dev/null)]}")
    local text="## $name: $(meaning $status), $seconds s"$'\n\n'"\`$shown\`"$'\n'
    [[ -s "$work/$name.md" ]] && text+=$(<"$work/$name.md")$'\n'
    ((status == 0)) || text+=$'\n```\n'$(tail -n 20 "$work/$name.log")$'\n```\n'
    parts_markdown+=("$text")
    write_results
    return $status
}
# left_out NAME REASON: a part that can't be measured here. That isn't a failure.
left_out() {
    is_wanted "$1" || return 0
    echo "$1: left out, $2"
    parts_json+=("{\"part\": $(quoted "$1"), \"meaning\": $(quoted "left out, $2"), \"rows\": []}")
    parts_markdown+=("## $1: left out, $2")
    write_results
}
write_results() {
    local about commit
    about=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -n 1)
    commit=$(cat $bin/commit 2>/dev/null || echo unknown)
    {
        printf '{\n  "gpu": %s,\n  "date": %s,\n  "commit": %s,\n  "command": %s,\n  "nvcc": %s,\n  "parts": [\n    ' \
            "$(quoted "$about")" "$(quoted "$today")" "$(quoted "$commit")" "$(quoted "$command")" \
            "$(quoted "$(nvcc --version 2>/dev/null | sed -n 's/.*release //p')")"
        local between=
        for each in "${parts_json[@]}"; do
            printf '%s%s' "$between" "$each"
            between=$',\n    '
        done
        printf '\n  ]\n}\n'
    } >"$prefix.json"
    {
        printf '# What a GPU does: %s\n\n' "$about"
        printf 'For those who ask what runs on a GPU, and how fast. Each section is a program of `bench/gpu`: how it ended, '
        printf 'its\ncommand, and its tables. [Running a plan](../../include/optpipe/execution/README.md#on-a-gpu) has a summary.\n\n'
        printf '%s, commit %s, `%s`\n' "$today" "$commit" "$command"
        printf '\n%s\n' "${parts_markdown[@]}"
    } >"$prefix.md"
}

if [[ $mode == all ]]; then
    export -f build
    export generator torch
    if ! part build 280 bash -c build; then
        cat "$work/build.log" >&2
        exit 2
    fi
fi

# One hardware queue per stream, as far as there are.
export CUDA_DEVICE_MAX_CONNECTIONS=32
part bandwidth 60 $bin/gpu_bandwidth --out "$work/bandwidth"
part conformance 60 $bin/gpu_conformance --out "$work/conformance"
part capture 40 $bin/gpu_capture --out "$work/capture"
part overhead 30 $bin/gpu_overhead --out "$work/overhead"
part arithmetic 40 $bin/gpu_arithmetic --out "$work/arithmetic"
part pairs 40 $bin/gpu_pairs --out "$work/pairs"
# With NCCL: the cost of a group; then, with two processes on the GPU, a process that is killed, the multiprocessors that
# receives take, and sums of gradients.
nccl() { # NAME SECONDS
    if [[ -x $bin/gpu_$1 ]]; then
        part "$1" "$2" "$bin/gpu_$1" --out "$work/$1"
    else
        left_out "$1" "as NCCL isn't installed"
    fi
}
nccl groups 40
nccl lost_rank 60
nccl receives 60
nccl sums 40
# Reads and writes out of bounds.
if command -v compute-sanitizer >/dev/null; then
    part sanitizer 90 compute-sanitizer --error-exitcode 1 $bin/gpu_conformance --out "$work/sanitizer"
else
    left_out sanitizer "as there is no compute-sanitizer"
fi
training() { # NAME SECONDS OPTIONS...
    local name=$1 limit=$2 left=$((all_seconds - SECONDS))
    if [[ ! -x $bin/gpu_training ]]; then
        left_out "$name" "as Eigen or oneTBB isn't installed"
        return
    fi
    shift 2
    ((limit < left)) || limit=$left
    # It begins nothing in the last 20 seconds.
    local begins=$((limit > 21 ? limit - 20 : 1))
    part "$name" "$limit" $bin/gpu_training --out "$work/$name" --seconds $begins "$@"
    [[ -e "$work/$name-problem.json" ]] && cp "$work/$name-problem.json" "$prefix-$name-problem.json"
}
if [[ -x $bin/gpu_post_validation ]]; then
    part post_validation 60 $bin/gpu_post_validation --out "$work/post_validation"
else
    left_out post_validation "as Eigen or oneTBB isn't installed"
fi
# Eight layers, in four stages or in eight. With tf32, computations are fast compared with the link.
four=(--ranks 4 --layers 2 --microbatches 8)
eight=(--ranks 8 --layers 1 --microbatches 16)
training storage-4-green-tf32 120 "${four[@]}" --on green-contexts --products tf32 --storage options --online 150
training training-4-green 80 "${four[@]}" --on green-contexts
training training-4-streams 70 "${four[@]}" --on streams
training training-4-green-tf32 60 "${four[@]}" --on green-contexts --products tf32
training training-8-green 100 "${eight[@]}" --on green-contexts
training storage-8-green-tf32 150 "${eight[@]}" --on green-contexts --products tf32 --storage options

# Plans in PyTorch, from C++ and from Python.
if [[ -n $torch && -x $bin/gpu_libtorch ]]; then
    part libtorch 100 $bin/gpu_libtorch --out "$work/libtorch"
    part libtorch_example 60 $bin/example_libtorch_cuda
else
    left_out libtorch "as Python has no torch for CUDA, or LibTorch's programs aren't built"
    left_out libtorch_example "as Python has no torch for CUDA, or LibTorch's programs aren't built"
fi
if [[ -n $torch && -x $bin/optpipe ]]; then
    part run_plan 150 "$python" bench/gpu/torch_plans.py --optpipe $bin/optpipe --out "$work/run_plan"
else
    left_out run_plan "as Python has no torch for CUDA, or the program optpipe isn't built"
fi

if [[ -n ${unknown//,/} ]]; then
    echo "there is no part ${unknown:1:-1}" >&2
    exit 2
fi
echo "written: $prefix.json, $prefix.md"
exit $failed
