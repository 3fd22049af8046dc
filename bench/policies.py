"""Policy sets for Lictor, with a stated mix of scopes.

What an organisation has once doesn't grow with the number of its agents; everything else does, and
keeps its density: seven policies an agent, ten a team, five a tenant. The exception is `read_file`,
which is named by one policy in twenty whatever the size, as popular tools are.

| of the policies        | scope                                                         |
|------------------------|---------------------------------------------------------------|
| 2                      | permit, principal in TrustDomain, action group                |
| 2, the caller's own    | permit, principal ==, resource ==                             |
| 10 (1 in a set of ten) | forbid, any principal, any resource, with a condition         |
| 5 (1 in a set of ten)  | permit, principal is, resource is, with a condition           |
| 70 % of the rest       | permit, principal ==, resource ==                             |
| 15 %                   | permit, principal in Group, resource ==                       |
| 10 %                   | permit, principal in Path, action group, resource in Server   |
| 5 %                    | forbid, principal ==, resource in Server, with a condition    |
"""

import pathlib

from inputs import CALLER, EXECUTE_TOOL, READ_TOOL, TRUST_DOMAIN

SERVER = "files"
# Lets policies look at the arguments of the two tools that are called.
SCHEMA = "".join(
    f"""\
action "{SERVER}/{tool}" in ["tools/call", "{group}"]
  appliesTo {{
    principal: Agent, resource: Tool, context: {{ input: {{ path: String, limit: Long }} }}
  }};
"""
    for tool, group in ((READ_TOOL, "read"), (EXECUTE_TOOL, "execute"))
)


def write(directory: pathlib.Path, count: int) -> dict:
    """Writes a set of `count` policies and its schema; returns the groups for the configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    policies = [*fixed(count)]
    rest = count - len(policies)
    policies += [growing(index, rest) for index in range(rest)]
    lines = [f'@id("{index:05}")\n{text}' for index, text in enumerate(policies)]
    (directory / "bench.cedar").write_text("\n".join(lines))
    (directory / "bench.cedarschema").write_text(SCHEMA)
    teams = max(1, round(rest * 0.15 / 10))
    groups = {
        f"team-{team}": [agent(7 * team + member) for member in range(7)] for team in range(teams)
    }
    groups["team-0"].append(CALLER)
    return groups


def agent(index: int) -> str:
    return f"spiffe://{TRUST_DOMAIN}/tenant/t{index % 97}/agent/a{index}"


def tenant(index: int) -> str:
    return f"spiffe://{TRUST_DOMAIN}/tenant/" + ("acme" if index == 0 else f"t{index}")


def fixed(count: int):
    """What does not grow with the organisation."""
    few = 1 if count < 100 else 10
    domain = f'principal in TrustDomain::"{TRUST_DOMAIN}"'
    yield permit(domain, 'action in Action::"control"', "resource")
    yield permit(domain, 'action in Action::"list"', "resource")
    for tool in (READ_TOOL, EXECUTE_TOOL):
        scope = (f'principal == Agent::"{CALLER}"', 'action in Action::"tools/call"')
        yield permit(*scope, f'resource == Tool::"{SERVER}/{tool}"')
    actions = f'action in [Action::"{SERVER}/{READ_TOOL}", Action::"{SERVER}/{EXECUTE_TOOL}"]'
    for index in range(few):
        if index % 2 == 0:
            secret = f'context.input.path like "/srv/secret-{index}/*"'
            yield forbid(
                "principal", actions, "resource", f"{secret} || context.input.limit > 1000"
            )
        else:
            yield forbid(
                "principal is Agent", "action", "resource", f'principal.path like "/retired-{index}/*"'
            )
    for index in range((few + 1) // 2):
        yield permit(
            "principal is Agent",
            'action in Action::"read"',
            "resource is Tool",
            f'resource.tags.contains("public-{index}")',
        )


def growing(index: int, rest: int) -> str:
    """Policy `index` of those that come with agents, teams and tenants."""
    kind, round_ = index % 20, index // 20
    if kind < 14:
        owner = agent(round_ * 2 + kind // 7)
        tool = f"{SERVER}/{READ_TOOL}" if kind == 13 else f"server-{round_}/tool_{kind}"
        scope = (f'principal == Agent::"{owner}"', 'action in Action::"tools/call"')
        return permit(*scope, f'resource == Tool::"{tool}"')
    if kind < 17:
        team = (index // 20 * 3 + kind - 14) // 10
        tool = f'resource == Tool::"server-{round_}/tool_{kind}"'
        return permit(f'principal in Group::"team-{team}"', 'action in Action::"tools/call"', tool)
    if kind < 19:
        path = tenant((round_ * 2 + kind - 17) // 5)
        server = f'resource in Server::"server-{round_}"'
        return permit(f'principal in Path::"{path}"', 'action in Action::"read"', server)
    return forbid(
        f'principal == Agent::"{agent(round_ * 2)}"',
        'action in Action::"tools/call"',
        f'resource in Server::"server-{round_}"',
        'resource.tags.contains("pii")',
    )


def permit(*scope_and_condition: str) -> str:
    return policy("permit", *scope_and_condition)


def forbid(*scope_and_condition: str) -> str:
    return policy("forbid", *scope_and_condition)


def policy(effect: str, principal: str, action: str, resource: str, condition: str = "") -> str:
    when = f"\nwhen {{ {condition} }}" if condition else ""
    return f"{effect} (\n  {principal},\n  {action},\n  {resource}\n){when};\n"
