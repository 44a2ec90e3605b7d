"""Rules of the Python tree: who imports whom, who reads the environment, what a package says it offers."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator

from tree import Source

CORE = "core/python/farandole/"
LAUNCH = (CORE + "launch/", CORE + "observe/")  # one layer
TESTING = CORE + "testing/"

# Packages that may be imported beside the standard library; farandole's own modules are judged apart.
CORE_PACKAGES = {"cloudpickle", "ml_dtypes", "numpy"}
TESTING_PACKAGES = CORE_PACKAGES | {"pytest"}
LAUNCH_PACKAGES = {"click", "psutil", "rich", "tomli", "yaml"}
BY_NAME_FILES = {CORE + "keras.py"}  # may import modules by computed names: Keras, and the plugin of what it runs on
BY_NAME_FILES |= {TESTING + "_template.py", TESTING + "conformance.py"}  # what a test asks to have imported
DROP_IN = "plugins/horovod/src/horovod/"  # passes on the names of all plugins, of the launcher and of farandole.keras
PRIVATE_FILES = {"_private.py", "private.py"}  # list what a package uses of its framework without a promise
_OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}  # which Python promises
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr", "attrgetter"}
_INTERNAL = re.compile(r"tensorflow\.(python|compiler|core)\b|keras\.src\b|torch\.(_\w+)|mxnet\.(libinfo)\b")
_SHARED = (
    "connection",
    "frames",
    "horovod_names",
    "membership_channel",
    "other_launchers",
    "proof",
    "rank_records",
    "slurm",
    "sockets",
    "this_host",
    "timeline_files",
)  # also of the launcher
BETWEEN = {f"farandole._start.{name}" for name in _SHARED}
BETWEEN |= {"farandole._api.adapter.DType", "farandole._api.ops.Kind"}  # whose numbers flight recorders have, too
LIBRARY = "farandole.launch"  # for `farandole.run`, clusters and plugins of these
LAUNCHER = (LIBRARY, "farandole.observe")
LIBRARY_MODULES = {f"{LIBRARY}.{name}" for name in ("events", "job", "output", "spec")}  # for the first two
RECORDER_FILES = {f"farandole.observe.{name}" for name in ("processes", "recorders", "records")}  # also of the core
FLIGHT_FILES = CORE + "_start/flight_files.py"
USES_LAUNCHER = (CORE + "_functions/", CORE + "_cluster/", CORE + "engine.py")

DROP_INS = (DROP_IN, "plugins/horovod/src/sparkdl/")
ESTIMATORS = "plugins/spark/src/farandole_spark/ml/"  # train on ranks, with the plugins of the frameworks

ENVIRONMENT_FILES = {CORE + "_start/environment.py", CORE + "launch/environment.py"}
ENVIRONMENT_FILES |= {CORE + "_start/task_environment.py"}  # of a task of a cluster
ENVIRONMENT_FILES |= {DROP_IN + "_environment.py", "plugins/ray/src/farandole_ray/_environment.py"}
ENVIRONMENT_FILES |= {ESTIMATORS + "backend.py"}  # of a rank on the driver's machine
ENVIRONMENT_FILES |= {TESTING + "_template.py"}  # a fork takes over the environment of the process that it becomes
_ENVIRONMENT_NAMES = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def module_of(path: str) -> str:
    """`core/python/farandole/launch/cli.py` -> "farandole.launch.cli"."""
    inside = re.sub(r"^(?:core/python|plugins/[^/]+/src)/", "", path)
    return re.sub(r"(?:/__init__)?\.pyi?$", "", inside).replace("/", ".")


def imports(source: Source) -> Iterator[tuple[int, str, str]]:
    """(line, module, imported name or "") for each import, wherever it stands; relative ones are resolved."""
    module = module_of(source.path)
    package = module if source.path.endswith("/__init__.py") else module.rpartition(".")[0]
    for node in ast.walk(source.tree()):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                origin = ".".join([*parents, origin] if origin else parents)
            for alias in node.names:
                yield node.lineno, origin, alias.name


def _below(module: str, parent: str) -> bool:
    return module == parent or module.startswith(parent + ".")


def _is_between(module: str) -> bool:
    return any(_below(module, each) for each in BETWEEN)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def core_import_violations(files: Iterable[Source]) -> list[str]:
    """The core imports no framework, and the launcher in USES_LAUNCHER alone; that imports of the core only BETWEEN."""
    found = []
    for source in files:
        if not source.path.startswith(CORE):
            continue
        launch, testing = source.path.startswith(LAUNCH), source.path.startswith(TESTING)
        packages = LAUNCH_PACKAGES if launch else TESTING_PACKAGES if testing else CORE_PACKAGES
        for line, origin, name in imports(source):
            module = f"{origin}.{name}" if origin == "farandole" and name else origin
            top = module.split(".")[0]
            allowed = top in sys.stdlib_module_names or top in packages
            if top == "farandole":
                is_library = module == LIBRARY or any(_below(module, each) for each in LIBRARY_MODULES)
                of_launcher = any(_below(module, each) for each in LAUNCHER)
                allowed = testing or of_launcher == launch or _is_between(f"{module}.{name}")
                allowed |= is_library and source.path.startswith(USES_LAUNCHER)
                allowed |= source.path == FLIGHT_FILES and bool({module, f"{module}.{name}"} & RECORDER_FILES)
            if not allowed:
                found.append(f"{source.path}:{line}: {'launch' if launch else 'the core'} may not import {module}")
    return found


def import_by_name_violations(files: Iterable[Source]) -> list[str]:
    """The core imports by statements, which are checked above, but in the files that are listed; nobody imports those.

    `farandole.keras` is for users alone: what imports it imports a framework.
    """
    found = []
    for source in files:
        inside = source.path.startswith(CORE)
        for node in ast.walk(source.tree()) if inside and source.path not in BY_NAME_FILES else ():
            if isinstance(node, ast.Name | ast.Attribute):
                name = node.id if isinstance(node, ast.Name) else node.attr
                if name in ("import_module", "__import__"):
                    found.append(f"{source.path}:{node.lineno}: {name} may import what no rule sees")
        for_all = (*DROP_INS, ESTIMATORS)
        if source.path.startswith(for_all) or (not inside and not re.match(r"plugins/[^/]+/src/", source.path)):
            continue
        for line, origin, name in imports(source):
            if _below(f"{origin}.{name}" if origin == "farandole" and name else origin, "farandole.keras"):
                found.append(f"{source.path}:{line}: farandole.keras is for users; import farandole.plugin")
    return found


def plugin_import_violations(files: Iterable[Source]) -> list[str]:
    """A plugin uses public names of farandole only and knows no other plugin, but the estimators."""
    found = []
    for source in files:
        match = re.match(r"plugins/[^/]+/src/([^/]+)/", source.path)
        if not match:
            continue
        for line, origin, name in imports(source):
            module = f"{origin}.{name}" if name else origin
            top = origin.split(".")[0]
            if top == "farandole" and any(_is_private(part) for part in module.split(".")):
                found.append(f"{source.path}:{line}: {module} is private to farandole")
            if source.path.startswith(DROP_INS):
                continue
            if any(_below(module, each) for each in LAUNCHER) and origin != LIBRARY:
                found.append(f"{source.path}:{line}: a plugin may not know the launcher")
            is_own = f"{top}_".startswith(f"{match[1]}_")
            if top.startswith("farandole_") and not is_own and not source.path.startswith(ESTIMATORS):
                found.append(f"{source.path}:{line}: a plugin may not know the plugin {top}")
        for node in ast.walk(source.tree()):
            if isinstance(node, ast.Attribute) and _is_private(node.attr):
                owner = ast.unparse(node.value)
                if _below(owner, "farandole"):
                    found.append(f"{source.path}:{node.lineno}: {owner}.{node.attr} is private to farandole")
    return sorted(found)


def _names_of_its_own(sources: Iterable[Source]) -> set[str]:
    """Private names that these files bind: functions, classes, arguments, variables, attributes of themselves."""
    names: set[str] = set()
    for source in sources:
        for node in ast.walk(source.tree()):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_of_oneself(node):
                names.add(node.attr)
    return names


def _is_of_oneself(node: ast.Attribute) -> bool:
    return ast.unparse(node.value) in ("self", "cls")


def private_name(node: ast.AST) -> str:
    """The private name that an expression asks another object for, by itself or as the text of getattr; or ""."""
    texts = []
    if isinstance(node, ast.Attribute):
        if ast.unparse(node.value).partition(".")[0] not in sys.stdlib_module_names:
            texts.append(node.attr)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in _BY_TEXT:
        texts += [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return next((each for each in texts if _is_private(each) and each not in _OF_NAMED_TUPLES), "")


def private_framework_violations(files: Iterable[Source]) -> list[str]:
    """One module of a package uses, and lists, the names that a framework or Keras does not promise."""
    packages: dict[str, list[Source]] = {}
    for source in files:
        match = re.match(r"(plugins/[^/]+/src|core/python/farandole/_keras)/", source.path)
        if match and source.path.endswith(".py"):
            packages.setdefault(match[1], []).append(source)
    found = []
    for sources in packages.values():
        own = _names_of_its_own(sources)
        package = module_of(sources[0].path).partition(".")[0]
        for source in sources:
            if source.path.rpartition("/")[2] in PRIVATE_FILES:
                continue
            for line, origin, name in imports(source):
                module = f"{origin}.{name}" if name else origin
                top = origin.partition(".")[0]
                is_ours = top == package or top.startswith("farandole")
                if not is_ours and (any(map(_is_private, module.split("."))) or _INTERNAL.match(module)):
                    found.append(f"{source.path}:{line}: {module} is private to its framework; _private.py lists such")
            for node in ast.walk(source.tree()):
                name = private_name(node)
                if name and name not in own and not name.startswith("_farandole"):
                    where = f"{source.path}:{getattr(node, 'lineno', 0)}"
                    found.append(f"{where}: {name} is private to its framework; _private.py lists such")
    return found


def python_environment_violations(files: Iterable[Source]) -> list[str]:
    found = []
    for source in files:
        if not re.match(r"core/python/|plugins/[^/]+/src/", source.path) or source.path in ENVIRONMENT_FILES:
            continue
        for node in ast.walk(source.tree()):
            if not isinstance(node, ast.Attribute) or node.attr not in _ENVIRONMENT_NAMES:
                continue
            if ast.unparse(node.value) in ("os", "posix"):
                found.append(f"{source.path}:{node.lineno}: os.{node.attr}; one file reads the environment")
        for line, origin, name in imports(source):
            if origin in ("os", "posix") and name in _ENVIRONMENT_NAMES:
                found.append(f"{source.path}:{line}: os.{name}; one file reads the environment")
    return found


def _bound_names(tree: ast.Module) -> set[str]:
    """Names that the module itself binds, those below `if` and `try` included."""
    names: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return names


def declared_names(source: Source) -> list[str] | None:
    """The names in `__all__`; None without `__all__`."""
    for node in source.tree().body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                return list(ast.literal_eval(node.value))
    return None


def declared_name_violations(files: Iterable[Source]) -> list[str]:
    """A distribution's package lists its public names; whoever lists names sorts them, once each, and has them."""
    found = []
    for source in files:
        match = re.match(r"(?:core/python|plugins/[^/]+/src)/(.+)$", source.path)
        if not match or not source.path.endswith(".py"):
            continue
        names = declared_names(source)
        if names is None:
            if re.fullmatch(r"[^/]+/__init__\.py", match[1]):
                found.append(f"{source.path}: has no __all__")
            continue
        if names != sorted(set(names)):
            found.append(f"{source.path}: __all__ is not sorted; write {sorted(set(names))}")
        bound = _bound_names(source.tree())
        missing = sorted(set(names) - bound)
        if missing and "__getattr__" not in bound:
            found.append(f"{source.path}: __all__ lists what is not there: {', '.join(missing)}")
    return found


def shadowed_module_violations(files: Iterable[Source]) -> list[str]:
    """No package takes a name from elsewhere that a module of it has: the import of that module would replace it."""
    packages: dict[str, set[str]] = {}
    sources = list(files)
    for source in sources:
        folder, _, name = source.path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")
        packages.setdefault(folder, set()).add(name)
    found = []
    for source in sources:
        folder, _, file = source.path.rpartition("/")
        for node in ast.parse(source.text).body if file == "__init__.py" else ():
            if isinstance(node, ast.ImportFrom) and node.module != module_of(source.path):
                names = {alias.asname or alias.name for alias in node.names} & packages.get(folder, set())
                found += [f"{source.path}:{node.lineno}: {name} is also a module of it" for name in sorted(names)]
    return found
