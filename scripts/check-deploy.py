"""What no tool checks of deploy/: that its files fit each other.

    check-deploy.py DEPLOY RULES

DEPLOY lies beside Cargo.toml, whose version the image has, and docker-compose.yml. Writes the queries of the dashboard to RULES, as rules that promtool can check.
"""

import json
import pathlib
import re
import sys

import yaml

deploy = pathlib.Path(sys.argv[1])
problems = []


def expect(holds, problem):
    if not holds:
        problems.append(problem)


def documents(path):
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def values(tree, name):
    """Every value under a key, wherever it is."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name:
                yield value
            yield from values(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value, name)


# Alerts, their pages and their tests.
groups = documents(deploy / "prometheus/alerts.yml")[0]["groups"]
alerts = {rule["alert"]: rule for group in groups for rule in group["rules"]}
pages = {page.stem: page for page in (deploy / "runbook").glob("*.md")}
tested = {}
for test in documents(deploy / "prometheus/alerts_test.yml")[0]["tests"]:
    for case in test["alert_rule_test"]:
        tested.setdefault(case["alertname"], set()).add(bool(case.get("exp_alerts")))
for name, rule in alerts.items():
    named = rule.get("annotations", {}).get("runbook")
    expect(named == f"deploy/runbook/{name}.md", f"the alert {name} names {named} as its page")
    expect(name in pages, f"the alert {name} has no page in runbook/")
    expect(tested.get(name) == {True, False}, f"the alert {name} needs a test that it fires and one that it does not")
    for part in ("summary", "description"):
        expect(rule.get("annotations", {}).get(part), f"the alert {name} has no {part}")
    expect(rule.get("labels", {}).get("severity") in ("critical", "warning"), f"the alert {name} has no severity")
for name, page in pages.items():
    expect(name in alerts, f"the page {page.name} has no alert")
    text = page.read_text()
    expect(text.startswith(f"# {name}\n"), f"the page {page.name} has another title")
    for part in ("\n**", "\n## Look\n", "\n## Type\n"):
        expect(part in text, f"the page {page.name} lacks {part.strip()!r}")

# Kubernetes: names that point from one file into another.
objects = [document for path in sorted((deploy / "kubernetes").glob("*.yaml")) for document in documents(path)]
of_kind = lambda kind: [document for document in objects if document["kind"] == kind]  # noqa: E731
secrets = {secret["metadata"]["name"]: secret["stringData"] for secret in of_kind("Secret")}
for secret in secrets.values():
    expect(not any(secret.values()), "secret.yaml has a value in it")
for document in objects:
    where = f"{document['kind']} {document['metadata']['name']}"
    for key in [*values(document, "secretKeyRef"), *values(document, "credentials")]:
        expect(key["key"] in secrets.get(key["name"], {}), f"{where}: no key {key['key']} in the secret {key['name']}")
    for volume in values(document, "secret"):
        for item in volume["items"]:
            expect(item["key"] in secrets.get(volume["secretName"], {}), f"{where}: no key {item['key']} in its secret")
for service in of_kind("Service"):
    pods = [deployment["spec"]["template"] for deployment in of_kind("Deployment")]
    chosen = [pod for pod in pods if service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()]
    expect(len(chosen) == 1, f"the service {service['metadata']['name']} chooses {len(chosen)} deployments")
    named = {port["name"] for pod in chosen for ports in values(pod, "ports") for port in ports}
    for port in service["spec"]["ports"]:
        expect(port["targetPort"] in named, f"the service {service['metadata']['name']}: no port {port['targetPort']}")
monitors = of_kind("ServiceMonitor")
expect(len(monitors) == 1, "one ServiceMonitor")
for monitor in monitors:
    expect(monitor["apiVersion"] == "monitoring.coreos.com/v1", "the version of the ServiceMonitor")
    labels = monitor["spec"]["selector"]["matchLabels"].items()
    chosen = [service for service in of_kind("Service") if labels <= service["metadata"]["labels"].items()]
    expect(len(chosen) == 1, f"the ServiceMonitor chooses {len(chosen)} services")
    named = {port["name"] for service in chosen for port in service["spec"]["ports"]}
    for endpoint in monitor["spec"]["endpoints"]:
        expect(endpoint["port"] in named, f"the ServiceMonitor: no port {endpoint['port']}")
for pod in values(objects, "containers"):
    for container in pod:
        context = container.get("securityContext", {})
        expect(context.get("readOnlyRootFilesystem") is True, f"the container {container['name']} may write its image")
        expect(context.get("allowPrivilegeEscalation") is False, f"the container {container['name']} may become more")
for job in of_kind("CronJob"):
    expect(job["spec"].get("concurrencyPolicy") == "Forbid", "the CronJob may run twice at once")
    expect("startingDeadlineSeconds" in job["spec"], "the CronJob may start at any time")

# One image everywhere, with the program's version: the default of the example, and what the manifests run or copy from.
version = re.search(r'^version = "(.+)"$', (deploy / "../Cargo.toml").read_text(), re.MULTILINE)[1]
public = f"lockhouse/lockhouse:{version}"
named = {"docker-compose.yml": set(), "deploy/kubernetes": set()}
for service in documents(deploy / "../docker-compose.yml")[0]["services"].values():
    variable, _, default = service["image"].removeprefix("${").removesuffix("}").partition(":-")
    expect(variable in ("LOCKHOUSE_IMAGE", "MONGO_IMAGE") and default, f"the image {service['image']} is no variable with a default")
    named["docker-compose.yml"] |= {default} if variable == "LOCKHOUSE_IMAGE" else set()
for path in (deploy / "kubernetes").glob("*.yaml"):
    named["deploy/kubernetes"] |= set(re.findall(r"[^\s=]*\blockhouse:[0-9][^\s]*", path.read_text()))
for where, images in named.items():
    expect(images == {public}, f"{where} names the image {', '.join(sorted(images)) or 'nowhere'}, and not {public}")

# The dashboard.
dashboard = json.loads((deploy / "grafana/dashboard.json").read_text())
panels = dashboard["panels"]
ids = [panel["id"] for panel in panels]
expect(len(ids) == len(set(ids)), "two panels of the dashboard have one id")
taken = set()
for panel in panels:
    place = panel["gridPos"]
    cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
    expect(place["x"] + place["w"] <= 24 and not cells & taken, f"the panel {panel['title']!r} lies over another one")
    taken |= cells
    expect(panel["type"] == "row" or panel.get("targets"), f"the panel {panel['title']!r} asks for nothing")
rules = []
for number, query in enumerate(values(panels, "expr")):
    for variable, value in {"$__rate_interval": "1m", "$job": ".*", "$instance": ".*"}.items():
        query = query.replace(variable, value)
    rules.append({"record": f"panel:query:{number}", "expr": query})
pathlib.Path(sys.argv[2]).write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

for problem in problems:
    print(f"deploy: {problem}")
print(f"deploy: {len(alerts)} alerts, {len(pages)} pages, {len(objects)} objects, {len(rules)} queries")
sys.exit(bool(problems))
