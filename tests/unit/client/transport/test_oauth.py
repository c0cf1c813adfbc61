"""What is said of a token endpoint's answer, without a broker."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.transport.oauth import fetch_token
from sparkrelay.errors import AuthenticationException

SECRET = "hunter2"


class Echo(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = f"the client secret {SECRET} is unknown".encode()
        self.send_response(401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def echo():
    server = HTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/token?api_key={SECRET}"
    server.shutdown()
    thread.join(LONG)
    server.server_close()


def test_a_refusal_that_quotes_the_secret_is_reported_without_it(echo):
    config = ClientConfig.from_dict(
        {
            "bootstrap.servers": "h:1",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": echo,
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": SECRET,
        }
    )
    with pytest.raises(AuthenticationException, match=r"/token answers 401.*client secret \(hidden\) is") as refused:
        fetch_token(config)
    assert SECRET not in str(refused.value)
