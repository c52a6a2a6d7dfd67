"""Requests to an operator's listener, as a program makes them."""

import base64
import http.client
import json
from contextlib import closing

from service.fake_operated import PASSWORD


class Reply:
    def __init__(self, status, headers, content):
        self.status, self.headers, self.content = status, headers, content

    @property
    def json(self):
        return json.loads(self.content)


def basic(user="operator", password=PASSWORD):
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def ask(server, path, method="GET", body=None, headers=None, auth=True):
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as connection:
        connection.request(method, path, body, (basic() if auth else {}) | (headers or {}))
        reply = connection.getresponse()
        return Reply(reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read())


def change(server, path, body, **headers):
    usual = {"Content-Type": "application/json", "X-Turnout": "1"}
    content = body if isinstance(body, (str, bytes)) else json.dumps(body)
    return ask(
        server, path, "POST", content, usual | {name.replace("_", "-"): value for name, value in headers.items()}
    )
