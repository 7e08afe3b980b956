"""schemas.py SCHEMAS [--optpipe PROGRAM] FILE_OR_FOLDER...

Checks that the JSON Schemas in the folder SCHEMAS describe our formats: each is a schema, each file of a format is valid by
the schema of its format, no schema is without a file, and the files with a mistake are refused. Examples in Markdown are
files, too. With the program, also the files that it writes, and the mistakes have to be ones that it refuses.
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
FORMAT = re.compile(r"optpipe\.([a-z]+)/([0-9]+)")


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
        yield from documents_in([here])


def changed(document, way, value):
    """A copy with another value of a field; the field is removed for None."""
    other = copy.deepcopy(document)
    at = other
    for step in way[:-1]:
        at = at[step]
    if value is None:
        del at[way[-1]]
    else:
        at[way[-1]] = value
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
        if lists in document:
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
    if "problem" in document and document.get("operations"):
        first = ["operations", 0]
        yield "an unknown field of an operation", changed(document, [*first, "frobnicate"], 1)
        if "op" in document["operations"][0]:
            yield "no start", changed(document, [*first, "start"], None)
            yield "a start that is a text", changed(document, [*first, "start"], "soon")
        else:
            yield "no kind", changed(document, [*first, "kind"], None)
            yield "an unknown kind", changed(document, [*first, "kind"], "X")


def is_refused_by(program, schema, document, problem):
    command = {"problem": ["plan", "-", "--method", "gpipe", "--quiet"],
               "layers": ["partition", "-", "--time-limit", "0.2", "--quiet"], "schedule": ["check", problem, "-"], "profile": ["profile", problem, "-", "--quiet"]}[schema.split("-")[0]]
    done = subprocess.run([program, *map(str, command)], input=json.dumps(document), text=True, capture_output=True,
                          check=False)
    return done.returncode == 2


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
        fail(f"{schema}: no file has this format")
    for schema, (name, document) in first_of.items():
        if program and is_refused_by(program, schema, document, problem):
            fail(f"the program refuses {name}")
        for what, wrong in mistakes_of(document):
            if schemas[schema].is_valid(wrong):
                fail(f"{schema} accepts {name} with {what}")
            if program and not is_refused_by(program, schema, wrong, problem):
                fail(f"the program accepts {name} with {what}")
    print("\n".join(failures) if failures else f"{len(documents)} files, {len(schemas)} schemas")
    return 1 if failures else 0


sys.exit(main())
