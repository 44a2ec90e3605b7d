"""Assesses several hosts: which answered, what each found, which reach each other, and how they differ. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from farandole.launch.head import address_search
from farandole.observe.doctor.finding import FAIL, WARN, Finding, fail, ok, warn

MOST_SECONDS_APART = 1.0
_NONE = "none"


@dataclass(frozen=True)
class Versions:
    """The versions of one host's packages, by name."""

    own: Mapping[str, str] = field(default_factory=dict)  # farandole and its plugins
    others: Mapping[str, str] = field(default_factory=dict)  # Python, numpy, frameworks
    wheels: Mapping[str, str] = field(default_factory=dict)  # digests of the files of `own`
    platform: str = ""  # wheels of other platforms have other files


@dataclass(frozen=True)
class Clock:
    """How far a host's clock is ahead of the launcher's, with the possible error, half a round trip."""

    ahead_s: float
    error_s: float


@dataclass
class HostFacts:
    """What is known of one host. `problem` and `remedy` say why it did not answer completely."""

    name: str
    problem: str = ""
    remedy: str = ""
    python: str = ""  # path of its interpreter
    version: str = ""  # of its agent
    identity: str = ""  # of the machine
    offered: Sequence[str] = ()  # its addresses
    reached: Collection[tuple[int, str]] | None = None  # numbers and addresses of the hosts that it reached
    clock: Clock | None = None
    findings: Sequence[Finding] | None = None
    versions: Versions | None = None

    @property
    def answered(self) -> bool:
        """Return whether an agent has answered from this host."""
        return bool(self.identity)


def findings_of(hosts: Sequence[HostFacts]) -> list[Finding]:
    """Return the findings, grouped by host, with those about several hosts at the end."""
    found: list[Finding] = []
    for index, host in enumerate(hosts):
        own = [*_answer(host), *_reach(index, hosts), *(host.findings or ())]
        found += [replace(each, host=host.name) for each in own]
    return [*found, *_duplicates(hosts), *_versions(hosts), *_wheels(hosts), *_clocks(hosts)]


def _answer(host: HostFacts) -> list[Finding]:
    found = [ok("agent", f"farandole {host.version}, {host.python}")] if host.answered else []
    if host.problem:
        name = host.name.rpartition("@")[2]
        remedy = host.remedy or f"try it: ssh {name} true"
        found.append(fail("check" if host.answered else "agent", host.problem, _sentence(remedy)))
    return found


def _sentence(text: str) -> str:
    """Return the text as a sentence of the report. Commands are not changed."""
    return text if text.startswith("ssh ") else text[:1].upper() + text[1:]


def _reach(index: int, hosts: Sequence[HostFacts]) -> list[Finding]:
    reached = {number: host.reached for number, host in enumerate(hosts) if host.reached is not None}
    if index not in reached or len(reached) < 2:
        return []
    offered = hosts[index].offered
    good = address_search.shared(index, offered, reached)
    if not good:
        cause, remedy = address_search.why_none(index, [host.name for host in hosts], offered, reached)
        return [fail("reach", cause, _sentence(remedy))]
    rest = [f"{each} by {_reachers(index, each, hosts, reached)}" for each in offered if each not in good]
    return [ok("reach", "; ".join([f"all others reach it at {', '.join(good)}", *rest]))]


def _reachers(index: int, address: str, hosts: Sequence[HostFacts], reached: address_search.Reached) -> str:
    found = [hosts[other].name for other in reached if other != index and (index, address) in reached[other]]
    return ", ".join(found) or "none"


def _duplicates(hosts: Sequence[HostFacts]) -> list[Finding]:
    names: dict[str, list[str]] = {}
    for host in hosts:
        if host.answered:
            names.setdefault(host.identity, []).append(host.name)
    fix = "Name it once, with all of its slots."
    return [fail("hosts", f"{_list(each)} are one machine", fix) for each in names.values() if len(each) > 1]


def _versions(hosts: Sequence[HostFacts]) -> list[Finding]:
    own: dict[str, dict[str, str]] = {}
    others: dict[str, dict[str, str]] = {}
    known = [host for host in hosts if host.versions is not None]
    for host in known:
        assert host.versions is not None
        own[host.name], others[host.name] = dict(host.versions.own), dict(host.versions.others)
    for host in hosts:
        if host.answered and host.versions is None:  # its agent was started with this interpreter
            own[host.name] = {"farandole": host.version}
    plugins = {name: own[name] for name in others}
    found = [_differing(FAIL, "farandole", own)]
    found += [_differing(FAIL, name, plugins) for name in _names(plugins) if name != "farandole"]
    found += [_differing(WARN, name, others) for name in _names(others)]
    return [each for each in found if each is not None]


def _names(versions: Mapping[str, Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(name for each in versions.values() for name in each))


def _differing(level: str, name: str, versions: Mapping[str, Mapping[str, str]]) -> Finding | None:
    """Return a finding if the hosts have different versions of package `name`."""
    hosts_of = _groups({host: each.get(name) or _NONE for host, each in versions.items()})
    if len(hosts_of) < 2:
        return None
    text = "; ".join(f"{version} on {_list(hosts)}" for version, hosts in hosts_of.items())
    wanted = max((each for each in hosts_of if each != _NONE), key=lambda each: len(hosts_of[each]))
    fix = f"Install one version on all hosts: python -m pip install '{name}=={wanted}'"
    if name == "Python":
        fix = "Use one version on all hosts; --python names the interpreter on others."
    return Finding(level, name, f"the hosts have different versions: {text}", fix)


def _groups(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the hosts of each value."""
    hosts_of: dict[str, list[str]] = {}
    for host, value in values.items():
        hosts_of.setdefault(value, []).append(host)
    return hosts_of


def _wheels(hosts: Sequence[HostFacts]) -> list[Finding]:
    """Assess packages of the same version and platform whose files differ, as in wheels of different builds."""
    groups: dict[tuple[str, str, str], dict[str, str]] = {}
    for host in hosts:
        known = host.versions or Versions()
        for name, digest in known.wheels.items():
            if digest:
                groups.setdefault((name, known.own.get(name, ""), known.platform), {})[host.name] = digest
    found = []
    for (name, version, _), digests in groups.items():
        text = "; ".join(f"build {digest} on {_list(names)}" for digest, names in _groups(digests).items())
        fix = f"python -m pip install --force-reinstall --no-deps {name}-{version}-*.whl"
        if len({*digests.values()}) > 1:
            text = f"the hosts have different wheels of {version}: {text}"
            found.append(fail(name, text, f"Install one wheel on all hosts: {fix}"))
    return found


def _clocks(hosts: Sequence[HostFacts]) -> list[Finding]:
    clocks = {host.name: host.clock for host in hosts if host.clock is not None}
    if len(clocks) < 2:
        return []
    first = min(clocks, key=lambda name: clocks[name].ahead_s)
    behind = clocks[first]
    apart = {name: clock.ahead_s - behind.ahead_s for name, clock in clocks.items() if name != first}
    late = {
        name: seconds
        for name, seconds in apart.items()
        if seconds - clocks[name].error_s - behind.error_s > MOST_SECONDS_APART
    }
    if not late:
        return [ok("clock", f"the hosts' clocks are at most {max(apart.values()):.1f} s apart")]
    who = ", ".join(f"{name} by {seconds:.1f} s" for name, seconds in late.items())
    fix = "Let chrony or systemd-timesyncd set the clocks; until then the times in logs and timelines do not fit."
    return [warn("clock", f"clocks are ahead of that of {first}: {who}", fix)]


def _list(names: Sequence[str]) -> str:
    """Return host names for a sentence."""
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
