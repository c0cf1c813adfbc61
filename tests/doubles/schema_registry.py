"""A schema registry in memory that speaks the REST of Confluent's, as far as it is asked here."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from tests.waiting import LONG


class SchemaRegistryDouble:
    """Listens on a port of its own until it is closed.

    Attributes:
        subjects: name -> the numbers of its versions' schemas, in order.
        schemas: number -> its body, as registered.
        requests: method and path of what was asked, in order.
        user: USER:PASSWORD that questions must bring; None: anybody may ask.
        answer: gets each path; what it returns that is not None, a code and a body, is answered instead.
    """

    def __init__(self, user=None):
        self.subjects, self.schemas, self.requests = {}, {}, []
        self.user, self.answer = user, lambda path: None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer._handle(self, None)

            def do_POST(self):
                outer._handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(self, subject, schema, kind="AVRO", references=()):
        """Add a version of a subject; return the schema's number. References are (name, subject, version)."""
        body = schema_body(schema, kind, references)
        number = next((known for known, its in self.schemas.items() if its == body), len(self.schemas) + 1)
        self.schemas[number] = body
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LONG)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _handle(self, handler, body):
        self.requests.append((handler.command, handler.path))
        code, answer = self.answer(handler.path) or self._answered(handler, body)
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        handler.send_response(code)
        if code in {301, 302, 307}:
            handler.send_header("Location", data.decode())
        handler.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def _answered(self, handler, body):
        if self.user is not None:
            expected = "Basic " + base64.b64encode(self.user.encode()).decode()
            if handler.headers["Authorization"] != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        path, _, query = handler.path.partition("?")
        parts = [unquote(part) for part in path.strip("/").split("/")]
        match parts:
            case ["schemas", "ids", number] if int(number) in self.schemas:
                return 200, self.schemas[int(number)]
            case ["subjects", subject, "versions"] if handler.command == "POST":
                kind = body.get("schemaType", "AVRO")
                references = [(one["name"], one["subject"], one["version"]) for one in body.get("references", ())]
                return 200, {"id": self.register(subject, body["schema"], kind, references)}
            case ["subjects", subject, *_] if subject not in self.subjects:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
            case ["subjects", subject]:
                found = [number for number in self.subjects[subject] if _same(self.schemas[number], body)]
                if not found:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, {"id": found[0], "version": self.subjects[subject].index(found[0]) + 1}
            case ["subjects", subject, "versions"]:
                return 200, list(range(1, len(self.subjects[subject]) + 1))
            case ["subjects", subject, "versions", version]:
                versions = self.subjects[subject]
                place = len(versions) if version == "latest" else int(version)
                if 1 <= place <= len(versions):
                    number = versions[place - 1]
                    body = dict(self.schemas[number])
                    if body.get("schemaType") == "PROTOBUF" and query != "format=serialized":
                        body["schema"] = 'syntax = "proto3"; ...'
                    return 200, {"subject": subject, "version": place, "id": number, **body}
        return 404, {"error_code": 40403, "message": "Not found"}


def schema_body(schema, kind, references):
    """Return what is posted to register a schema; references are (name, subject, version)."""
    body = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
    return body


def _same(one, other):
    if one.get("schemaType") == "PROTOBUF":
        return one == other
    return json.loads(one["schema"]) == json.loads(other["schema"])
