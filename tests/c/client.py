"""client.py LIBRARY HEADER PAGE PROBLEM: the C interface from Python's ctypes, and the example of the page.

PROBLEM takes long to plan; a thread stops it."""
import ctypes
import json
import math
import re
import sys
import threading

library, header, page, hard_problem = sys.argv[1:]
c = ctypes.CDLL(library)
handle = ctypes.c_void_p
out = ctypes.POINTER(handle)
text = ctypes.c_char_p


class Progress(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("objective", ctypes.c_double), ("bound", ctypes.c_double),
                ("strategy", text)]


class Operation(ctypes.Structure):
    _fields_ = [("stage", ctypes.c_uint32), ("microbatch", ctypes.c_uint32), ("kind", ctypes.c_int),
                ("storage", ctypes.c_uint32), ("start", ctypes.c_double), ("end", ctypes.c_double)]


ProgressFunction = ctypes.CFUNCTYPE(None, ctypes.POINTER(Progress), ctypes.c_void_p)

# Of each function: what it returns, and its arguments.
signatures = {
    "abi": (ctypes.c_int,),
    "version": (text,),
    "status_text": (text, ctypes.c_int),
    "kind_text": (text, ctypes.c_int),
    "error_free": (None, handle),
    "error_message": (text, handle),
    "error_count": (ctypes.c_size_t, handle),
    "error_place": (text, handle, ctypes.c_size_t),
    "error_reason": (text, handle, ctypes.c_size_t),
    "stop_new": (handle,),
    "stop_free": (None, handle),
    "stop_request": (ctypes.c_int, handle),
    "options_new": (handle,),
    "options_free": (None, handle),
    "options_set_time_limit": (ctypes.c_int, handle, ctypes.c_double),
    "options_set_threads": (ctypes.c_int, handle, ctypes.c_size_t),
    "options_set_gap": (ctypes.c_int, handle, ctypes.c_double),
    "options_set_seed": (ctypes.c_int, handle, ctypes.c_uint64),
    "options_set_stop": (ctypes.c_int, handle, handle),
    "options_set_progress": (ctypes.c_int, handle, ProgressFunction, ctypes.c_void_p),
    "plan": (ctypes.c_int, text, handle, out, out),
    "result_free": (None, handle),
    "result_end": (ctypes.c_int, handle),
    "result_objective": (ctypes.c_double, handle),
    "result_bound": (ctypes.c_double, handle),
    "result_schedule": (text, handle),
    "result_ranks": (ctypes.c_size_t, handle),
    "result_operations": (ctypes.POINTER(Operation), handle, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)),
    "validate": (ctypes.c_int, text, text, out),
}
with open(header, encoding="utf-8") as file:
    constants = dict(re.findall(r"\b(OPTPIPE_[A-Z_]+) = (\d+)", file.read()))
constants = {name: int(value) for name, value in constants.items()}


def call(name, *arguments):
    function = getattr(c, "optpipe_" + name)
    function.restype, *function.argtypes = signatures[name]
    return function(*arguments)


def plan(problem, options=None):
    result, error = handle(), handle()
    status = call("plan", problem, options, ctypes.byref(result), ctypes.byref(error))
    return status, result, error


def operations(result, rank):
    count = ctypes.c_size_t()
    first = call("result_operations", result, rank, ctypes.byref(count))
    return [first[i] for i in range(count.value)]


def check_plan():
    stage = {"forward": 10, "backward_input": 10.5, "backward_weight": 6, "activation": 1}
    problem = json.dumps({"format": "optpipe.problem/1", "ranks": 2, "microbatches": 4, "memory_limit": 2,
                          "stages": [{"rank": r, **stage} for r in (0, 1)]}).encode()
    status, result, error = plan(problem)
    assert status == constants["OPTPIPE_OK"] and result and not error
    schedule = call("result_schedule", result)
    claims = json.loads(schedule)
    assert claims["objective"] == call("result_objective", result)
    assert claims["bound"] == call("result_bound", result)
    listed = {f"{op.stage}{call('kind_text', op.kind).decode()}{op.microbatch}": (op.start, op.end)
              for rank in range(call("result_ranks", result)) for op in operations(result, rank)}
    assert listed == {op["op"]: (op["start"], op["end"]) for op in claims["operations"]}
    assert call("validate", problem, schedule, None) == constants["OPTPIPE_OK"]
    call("result_free", result)


def check_error():
    status, result, error = plan(b"{}")
    assert status == constants["OPTPIPE_INVALID_INPUT"] and not result
    places = [call("error_place", error, i) for i in range(call("error_count", error))]
    assert b"format" in places and b"stages" in places, places
    assert b"is missing" in call("error_message", error)
    call("error_free", error)
    assert plan(None)[0] == constants["OPTPIPE_INVALID_ARGUMENT"]
    assert math.isnan(call("result_objective", None))


def check_stop():
    """The plan runs in a thread of its own, whose progress wakes this one."""
    with open(hard_problem, "rb") as file:
        problem = file.read()
    has_begun, found = threading.Event(), []
    note = ProgressFunction(lambda progress, context: has_begun.set())
    stop, options = call("stop_new"), call("options_new")
    call("options_set_time_limit", options, 3600.0)
    call("options_set_stop", options, stop)
    call("options_set_progress", options, note, None)
    planner = threading.Thread(target=lambda: found.extend(plan(problem, options)))
    planner.start()
    has_begun.wait()
    call("stop_request", stop)
    planner.join()
    status, result, _ = found
    assert status == constants["OPTPIPE_OK"]
    assert call("result_end", result) == constants["OPTPIPE_END_STOP_REQUEST"]
    for name, kept in (("result_free", result), ("options_free", options), ("stop_free", stop)):
        call(name, kept)


def check_page():
    """The example of the page runs as it is, but for where the library is."""
    with open(page, encoding="utf-8") as file:
        example = re.search(r"```python\n(.*?)```", file.read(), re.DOTALL).group(1)
    assert '"liboptpipe_c.so.' in example
    exec(re.sub(r'"liboptpipe_c\.so\.\d+"', repr(library), example), {})


check_plan()
check_error()
check_stop()
check_page()
