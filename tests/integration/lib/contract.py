# SPDX-License-Identifier: MIT
"""The API's own description as a judge: requests and answers are held against vmm/openapi.json.

Answers are judged strictly: a member that no schema names is a fault of the description, unless the
schema says that it allows others."""
import json
import urllib.parse

import jsonschema

from harness import Api

BODIES = ("POST", "PUT", "PATCH")


class Fault(AssertionError):
    """What was sent or answered is not what the description says."""


class Description:
    def __init__(self, document):
        self.document = document
        self.operations = {}  # (method, path template): operation
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                self.operations[method.upper(), path] = operation
        self._validators = {}

    # ---- finding things ----

    def deref(self, thing):
        while isinstance(thing, dict) and "$ref" in thing:
            found = self.document
            for word in thing["$ref"].removeprefix("#/").split("/"):
                found = found[word]
            thing = found
        return thing

    def find(self, method, path):
        """(template, operation) of a path as it is sent, without its query; None when there is none."""
        words = path.split("/")
        best = None
        for (known, template), operation in self.operations.items():
            if known != method:
                continue
            parts = template.split("/")
            tail = parts[-1] == "{path}"
            if len(words) < len(parts) or (len(words) > len(parts) and not tail):
                continue
            if all(part == word or part.startswith("{") for part, word in zip(parts, words)):
                n_fixed = sum(not part.startswith("{") for part in parts)
                if best is None or n_fixed > best[0]:
                    best = (n_fixed, template, operation)
        return best[1:] if best else None

    def parameters(self, operation):
        return [self.deref(parameter) for parameter in operation.get("parameters", [])]

    def json_schema(self, content):
        return self.deref(content.get("application/json", {}).get("schema"))

    def body_schema(self, operation):
        return self.json_schema(operation.get("requestBody", {}).get("content", {}))

    # ---- schemas ----

    def closed(self, schema, depth=0):
        """The schema with its references filled in, where objects have the members named and no others."""
        schema = self.deref(schema)
        if not isinstance(schema, dict):
            return schema
        if depth > 20:
            raise Fault("schemas refer to each other in a circle")
        out = {key: value for key, value in schema.items() if key not in ("allOf", "example", "description")}
        for part in schema.get("allOf", []):
            part = self.deref(part)
            for key, value in part.items():
                if key == "properties":
                    out["properties"] = {**out.get("properties", {}), **value}
                elif key == "required":
                    out["required"] = [*out.get("required", []), *value]
                else:
                    out.setdefault(key, value)
        if "properties" in out:
            out["properties"] = {name: self.closed(value, depth + 1) for name, value in out["properties"].items()}
            out.setdefault("additionalProperties", False)
        if isinstance(out.get("items"), dict):
            out["items"] = self.closed(out["items"], depth + 1)
        if isinstance(out.get("additionalProperties"), dict):
            out["additionalProperties"] = self.closed(out["additionalProperties"], depth + 1)
        for word in ("oneOf", "anyOf"):
            if word in out:
                out[word] = [self.closed(part, depth + 1) for part in out[word]]
        return out

    def validate(self, value, schema, what):
        key = json.dumps(schema, sort_keys=True)
        if key not in self._validators:
            closed = self.closed(schema)
            jsonschema.Draft202012Validator.check_schema(closed)
            self._validators[key] = jsonschema.Draft202012Validator(closed)
        faults = sorted(self._validators[key].iter_errors(value), key=str)
        if faults:
            at = "/".join(map(str, faults[0].absolute_path))
            raise Fault(f"{what}: {at or 'it'}: {faults[0].message[:600]}")

    # ---- judging ----

    def check_request(self, method, path, headers, body):
        """A request that is meant to be right."""
        path, _, query = path.partition("?")
        found = self.find(method, path)
        if found is None:
            raise Fault(f"{method} {path} is not described")
        template, operation = found
        what = f"{method} {template}"
        words = dict(zip(template.split("/"), path.split("/")))
        given = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        known = set()
        fields = dict(field.split(": ", 1) for field in headers)
        for parameter in self.parameters(operation):
            name, place = parameter["name"], parameter["in"]
            known.add((name.lower(), place))
            value = {"path": lambda n: urllib.parse.unquote(words.get("{" + n + "}", "")),
                     "query": given.get, "header": fields.get}[place](name)
            if value is None:
                if parameter.get("required"):
                    raise Fault(f"{what}: {place} parameter {name} is required")
                continue
            schema = self.deref(parameter["schema"])
            if schema.get("type") == "integer":
                value = int(value)
            elif schema.get("type") == "boolean":
                value = {"true": True, "false": False}.get(value, value)
            self.validate(value, schema, f"{what}: parameter {name}")
        for name in given:
            if (name, "query") not in known:
                raise Fault(f"{what}: query parameter {name} is not described")
        for name in fields:
            if name not in ("content-type", "authorization", "accept") and (name, "header") not in known:
                raise Fault(f"{what}: header {name} is not described")
        if method in BODIES and body is not None:
            schema = self.body_schema(operation)
            if "requestBody" not in operation:
                raise Fault(f"{what} takes no body")
            if schema is not None and isinstance(body, dict):
                self.validate(body, schema, f"{what}: request")
        return what

    def check_answer(self, method, path, answer):
        """Returns the operation as "METHOD TEMPLATE"."""
        found = self.find(method, path.partition("?")[0])
        if found is None:
            raise Fault(f"{method} {path} is not described")
        template, operation = found
        what = f"{method} {template}: {answer.status}"
        described = operation["responses"]
        response = self.deref(described.get(str(answer.status), described.get("default")))
        if answer.status < 400 and str(answer.status) not in described:
            raise Fault(f"{what} is not described: {answer.body[:200]}")
        for name in self.deref(response).get("headers", {}):
            optional = self.deref(response["headers"][name]).get("required") is False
            if name.lower() not in answer.headers and not optional and name != "content-length":
                raise Fault(f"{what}: header {name} is missing")
        content = response.get("content")
        if method == "HEAD":
            return f"{method} {template}"
        kind = answer.headers.get("content-type", "").partition(";")[0]
        if not content:
            if answer.body:
                raise Fault(f"{what}: a body where none is described")
        elif kind == "application/json" and kind in content:
            self.validate(answer.json(), content[kind]["schema"], what)
        elif kind not in content and "*/*" not in content:
            if answer.status >= 400 or "application/octet-stream" not in content:
                raise Fault(f"{what}: the body is {kind or 'of no type'}, described are {', '.join(content)}")
        if answer.status >= 400 and answer.status != 416 and sorted(answer.json())[:1] != ["code"]:
            raise Fault(f"{what}: {answer.body[:200]}")
        return f"{method} {template}"


class JudgedApi(Api):
    """An Api whose answers are judged, and its requests, too, unless wrong=True says that this one is meant
    to be refused. seen: {"METHOD TEMPLATE": {status, ...}}."""

    def __init__(self, api, description, seen):
        super().__init__(api.socket_path, api.key, api.limit)
        self.description = description
        self.seen = seen

    def request(self, method, path, body=None, headers=(), raw=None, wrong=False):
        if not wrong:
            self.description.check_request(method, path, headers, body if raw is None else raw)
        answer = super().request(method, path, body, headers, raw)
        what = self.description.check_answer(method, path, answer)
        self.seen.setdefault(what, set()).add(answer.status)
        return answer
