"""schemas.py SCHEMAS [--optpipe PROGRAM] FILE_OR_FOLDER...

Checks that the JSON Schemas in the folder SCHEMAS describe our formats: each is a schema, each file of a format is valid by
the schema of its format, no schema is without a file, and the files with a mistake are refused. Examples in Markdown are
files, too. With the program, also the files that it writes, the mistakes have to be ones that it refuses, and what it
refuses after a change of one value is refused by the schema as well, but for rules that no schema can state (BEYOND).
"""

import copy
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import jsonschema

failures = []
FORMAT = re.compile(r"optpipe\.([a-z-]+)/([0-9]+)")

NULL = object()
SWEPT = "memory_limit=3,4,5"

# What only the program writes or reads.
OF_PROGRAM = re.compile(r".*-result-1|sweep-1|programs-1|chrome-trace|model-config")

CONFIG = {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
          "num_key_value_heads": 8, "vocab_size": 128256}

# Formats of others, which have no field `format`.
FREE = {"chrome-trace", "model-config"}
# A format of which the program reads one field.
LENIENT = {"solve-result-1"}

# Messages of the program on rules that compare several values; schemas/README.md lists these rules.
BEYOND = re.compile(r"there are [0-9]+ (ranks|stages|layers)|there is 1 rank|holds no stage|what a single microbatch needs|"
                    r"is above held|is above the|is less than the stage's|step has|is of another sweep|"
                    r"solution: there is none|not a solution of a model|is that of storage")


def fail(text):
    failures.append(text)


def read_schemas(folder):
    schemas = {}
    for path in sorted(folder.glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator.check_schema(schema)
        schemas[path.name.removesuffix(".schema.json")] = jsonschema.Draft202012Validator(schema)
    return schemas


def texts_in(path):
    """The JSON texts of a file, each with a name."""
    if path.suffix == ".json":
        yield str(path), path.read_text(encoding="utf-8")
    elif path.suffix == ".md":
        blocks = re.findall(r"^```json\n(.*?)^```", path.read_text(encoding="utf-8"), re.S | re.M)
        for number, block in enumerate(blocks):
            yield f"{path} (example {number + 1})", block


def documents_in(paths):
    """The documents of our formats, as (name, schema's name, document)."""
    for path in paths:
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        for file in files:
            for name, text in texts_in(file) if file.is_file() else []:
                match = FORMAT.search(text)
                if match:
                    document = json.loads(text)
                    if isinstance(document, dict) and FORMAT.fullmatch(str(document.get("format"))):
                        yield name, "-".join(FORMAT.fullmatch(document["format"]).groups()), document


def written_by(program, problem, layers):
    """The files that the program writes."""
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)

        def run(*arguments):
            subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

        run("plan", problem, "--quiet", "--out", here / "plan.json")
        run("plan", problem, "--quiet", "--forward-only", "--out", here / "forwards.json")
        run("run", problem, here / "plan.json", "--quiet", "--steps", 2, "--scale", "1e-5", "--out", here / "step.json")
        run("profile", problem, here / "step-1.json", here / "step-2.json", "--quiet", "--save", here / "profile.json",
            "--out", here / "measured.json")
        for kind in ["--memory=80"], ["--memory=80", "--layers"]:
            run("new", "--model", "llama3-8b", "--ranks", 8, *kind, "--out", here / f"new{len(kind)}.json")
        run("partition", layers, "--time-limit", 0.5, "--quiet", "--out", here / "problem.json", "--plan",
            here / "chosen.json")
        run("lower", problem, here / "plan.json", "--message-bytes", 64, "--messages", "single", "--out",
            here / "programs.json")
        run("lower", problem, here / "forwards.json", "--out", here / "forward-programs.json")
        run("plan", problem, "--quiet", "--method", "1f1b", "--trace", here / "trace.json", "--out", here / "other.json")
        yield "the trace", "chrome-trace", json.loads((here / "trace.json").read_text(encoding="utf-8"))
        (here / "trace.json").unlink()
        yield "a model's configuration", "model-config", CONFIG

        def print_to(name, *arguments, status=0):
            done = subprocess.run([program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  check=False)
            if done.returncode != status:
                fail(f"{arguments[0]} for {name}: exit status {done.returncode}")
            (here / name).write_bytes(done.stdout)

        plan, other = here / "plan.json", here / "other.json"
        print_to("planned.json", "plan", problem, "--json")
        print_to("robust.json", "plan", problem, "--json", "--noise", "0.1", "--time-limit", "0.5")
        print_to("built.json", "plan", problem, "--json", "--method", "1f1b")
        measured = json.loads(problem.read_text(encoding="utf-8"))
        measured["microbatches"] *= 2
        (here / "size.json").write_text(json.dumps(measured), encoding="utf-8")
        print_to("sizes.json", "plan", problem, "--json", "--costs-at", here / "size.json", "--time-limit", "0.5")
        print_to("none.json", "plan", problem.parent / "small-host.json", "--json", status=3)
        print_to("divided.json", "partition", layers, "--time-limit", "0.5", "--json")
        print_to("checked.json", "check", problem, plan, "--json")
        print_to("wrong.json", "check", problem, plan, "--json", "--set", "microbatches=2", status=1)
        print_to("reasons.json", "why", problem, plan, "--json", "--time-limit", "0.1")
        print_to("enlarged.json", "whatif", problem, plan, "--json", "--time-limit", "0.1", "--most", "2")
        print_to("same.json", "diff", problem, plan, plan, "--json")
        print_to("different.json", "diff", problem, plan, other, "--json", status=1)
        run("compare", problem, "--time-limit", "0.1", "--plan", plan, "--json", here / "compared.json")
        run("sweep", problem, "--set", SWEPT, "--methods", "gpipe,1f1b", "--resume", here / "rows.json")
        run("export-mps", problem, "--set", "microbatches=1", "--out", here / "model.mps")
        run("solve", here / "model.mps", "--out", here / "solved.json")
        yield from documents_in([here])


def changed(document, way, value):
    """A copy with another value of a field; the field is removed for None, and null for NULL."""
    other = copy.deepcopy(document)
    at = other
    for step in way[:-1]:
        at = at[step]
    if value is None:
        del at[way[-1]]
    else:
        at[way[-1]] = None if value is NULL else value
    return other


def mistakes_of(document):
    """Documents with one mistake each, as (what, document), in whatever the document has."""
    yield "an unknown field", changed(document, ["frobnicate"], 1)
    yield "no format", changed(document, ["format"], None)
    yield "another format", changed(document, ["format"], "optpipe.problem/9")
    for name in "ranks", "microbatches":
        if name in document:
            yield f"no {name}", changed(document, [name], None)
            yield f"{name} of 1.5", changed(document, [name], 1.5)
    if "ranks" in document:
        yield "no backward", {**document, "split_backward": False, "full_backward": False}
        yield "a limit that is a text", {**document, "memory_limit": "much"}
        yield "three engines", {**document, "transfer": {"engines": 3}}
    for lists in "stages", "layers":
        if isinstance(document.get(lists), list):
            first = [lists, 0]
            yield "no forward", changed(document, [*first, "forward"], None)
            yield "a forward of 0", changed(document, [*first, "forward"], 0)
            yield "a negative activation", changed(document, [*first, "activation"], -1)
            yield "a misspelt field", changed(document, [*first, "frward"], 1)
            yield "a reload alone", changed(changed(document, [*first, "reload"], 1), [*first, "offload"], {})
            yield "an empty list of options", changed(document, [*first, "storage"], [])
            yield "an option without a name", changed(document, [*first, "storage"], [{"recompute": 1}])
    for name in "messages", "memory":
        if name in document:
            yield f"no {name}", changed(document, [name], None)
    if "problem" in document and document.get("operations") and isinstance(document["operations"][0], dict):
        first = ["operations", 0]
        yield "an unknown field of an operation", changed(document, [*first, "frobnicate"], 1)
        if "op" in document["operations"][0]:
            yield "no start", changed(document, [*first, "start"], None)
            yield "a start that is a text", changed(document, [*first, "start"], "soon")
        else:
            yield "no kind", changed(document, [*first, "kind"], None)
            yield "an unknown kind", changed(document, [*first, "kind"], "X")


# The commands that read a format; HERE is the file.
READERS = {"problem": ["plan", "HERE", "--method", "gpipe", "--quiet"],
           "layers": ["partition", "HERE", "--time-limit", "0.2", "--quiet"],
           "schedule": ["check", "PROBLEM", "HERE"],
           "profile": ["profile", "PROBLEM", "HERE", "--quiet"],
           "sweep": ["sweep", "PROBLEM", "--set", SWEPT, "--methods", "gpipe,1f1b", "--quiet", "--resume", "HERE"],
           "solve-result": ["import-solution", "PROBLEM", "HERE", "--set", "microbatches=1", "--out", "/dev/null"],
           "model-config": ["new", "--config", "HERE", "--ranks", "4", "--memory", "20000", "--out", "/dev/null"]}


def refusal_of(program, schema, document, problem):
    """What the program says where it refuses the document; else nothing."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "file.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        places = {"HERE": str(file), "PROBLEM": str(problem)}
        command = [places.get(word, word) for word in READERS[re.sub(r"-[0-9]+$", "", schema)]]
        done = subprocess.run([program, *command], text=True, capture_output=True, check=False)
        return done.stderr if done.returncode == 2 else None


def is_read(schema):
    return re.sub(r"-[0-9]+$", "", schema) in READERS


def places_in(document, way=()):
    """The ways to all values; of a list, or an object with many names, to the first and the last."""
    most_names = 30
    if way:
        yield list(way)
    steps = []
    if isinstance(document, dict):
        steps = list(document)
    elif isinstance(document, list):
        steps = list(range(len(document)))
    for step in steps[:1] + steps[-1:] if isinstance(document, list) or len(steps) > most_names else steps:
        yield from places_in(document[step], (*way, step))


def check_changes(program, schemas, schema, name, document, problem):
    """Whatever the program refuses after a change of one value, the schema must refuse, but for rules in BEYOND."""
    for way in places_in(document):
        for value in None, NULL, "text", -1, 1.5, [], {}, True:
            wrong = changed(document, way, value)
            if not schemas[schema].is_valid(wrong):
                continue
            said = refusal_of(program, schema, wrong, problem)
            if said and not BEYOND.search(said):
                fail(f"{schema} accepts {name} with {way} of {'null' if value is NULL else value}, but: {said.strip()[:200]}")


def check_mistakes(program, schemas, schema, name, document, problem):
    for what, wrong in mistakes_of(document):
        if schemas[schema].is_valid(wrong):
            fail(f"{schema} accepts {name} with {what}")
        if program and not refusal_of(program, schema, wrong, problem):
            fail(f"the program accepts {name} with {what}")


def main():
    arguments = sys.argv[1:]
    program = None
    if "--optpipe" in arguments:
        at = arguments.index("--optpipe")
        program = arguments[at + 1]
        del arguments[at : at + 2]
    schemas = read_schemas(pathlib.Path(arguments[0]))
    root = pathlib.Path(__file__).resolve().parents[2]
    problem = root / "tests/data/stored.json"
    documents = list(documents_in([pathlib.Path(path) for path in arguments[1:]]))
    if program:
        documents += written_by(program, problem, root / "examples/data/llama3-8b-p8.layers.json")
    first_of = {}
    for name, schema, document in documents:
        if schema not in schemas:
            fail(f"{name}: there is no schema {schema}")
            continue
        first_of.setdefault(schema, (name, document))
        for error in schemas[schema].iter_errors(document):
            fail(f"{name}: {error.json_path}: {error.message[:200]}")
    for schema in sorted(set(schemas) - set(first_of)):
        if program or not OF_PROGRAM.fullmatch(schema):
            fail(f"{schema}: no file has this format")
    for schema, (name, document) in first_of.items():
        reads = program and is_read(schema)
        if reads and refusal_of(program, schema, document, problem):
            fail(f"the program refuses {name}")
        if schema not in FREE:
            check_mistakes(program if reads and schema not in LENIENT else None, schemas, schema, name, document, problem)
        if reads:
            check_changes(program, schemas, schema, name, document, problem)
    print("\n".join(failures) if failures else f"{len(documents)} files, {len(schemas)} schemas")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
