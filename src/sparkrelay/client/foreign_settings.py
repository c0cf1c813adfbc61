"""Connection settings of the Java client and librdkafka that we do not have: why not, and what to do instead.

See ``sparkrelay.settings``. From Kafka 4.3's ConsumerConfig and librdkafka's CONFIGURATION.md; a test checks for gaps.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sparkrelay.settings import Foreign

if TYPE_CHECKING:
    from collections.abc import Mapping

_JKS: Final = Foreign(
    "Python reads PEM files, no Java keystores: export the authorities' certificates "
    "(keytool -exportcert -rfc) and name the file in ssl.ca.location; for a client certificate "
    "(openssl pkcs12) give ssl.certificate.location and ssl.key.location"
)
_JVM: Final = Foreign("it names a class or provider of the Java runtime; leave it out", ("",))
_JAAS: Final = Foreign(
    "it is Java's; give sasl.mechanism, sasl.username and sasl.password, or oauth_cb for OAUTHBEARER"
)
_HANDLER: Final = Foreign("it names a Java class; for OAUTHBEARER tokens of your own give oauth_cb, a Python function")
_KINIT: Final = Foreign("tickets are the system's: renew them with kinit outside of this process", None)
_LOGIN: Final = Foreign(
    "a token is asked for anew when 80 % of its life is over, and failures follow retry.backoff.ms", None
)
_BROKERS: Final = Foreign("it concerns brokers that check tokens, not clients", None)
_ASSERTION: Final = Foreign(
    "only the grant of client credentials is built in (client id and secret): for other grants give oauth_cb"
)
_OPENSSL: Final = Foreign(
    "protocols, ciphers and curves follow the system's OpenSSL policy (TLS 1.2 or newer): set it in openssl.cnf"
)
_CALLBACK: Final = Foreign("there is no such callback; errors are raised by the call that they concern")
_LOG: Final = Foreign("logging is Python's: use the loggers sparkrelay.*, and kafka.net for the wire", None)
_METRICS: Final = Foreign("metrics are read from the consumer itself, not reported or pushed")
_TUNING: Final = Foreign("it tunes the inner workings of another client; there is nothing like it here", None)
_OLD: Final = Foreign("brokers say which versions they know (ApiVersions); Kafka 2.1 is the oldest understood", None)


def each(foreign: Foreign, prefix: str, names: str) -> dict[str, Foreign]:
    """Return an entry for each name after a common prefix."""
    return dict.fromkeys((prefix + name for name in names.split()), foreign)


FOREIGN: Final[Mapping[str, Foreign]] = MappingProxyType(
    {
        # TLS
        "ssl.truststore.location": _JKS,
        "ssl.truststore.password": _JKS,
        "ssl.truststore.type": Foreign(_JKS.note, ("pem",)),
        "ssl.keystore.location": _JKS,
        "ssl.keystore.password": _JKS,
        "ssl.keystore.type": Foreign(_JKS.note, ("pem",)),
        **each(_JVM, "ssl.", "keymanager.algorithm trustmanager.algorithm secure.random.implementation"),
        **each(_JVM, "ssl.", "engine.factory.class provider"),
        "security.providers": _JVM,
        "ssl.protocol": Foreign(_OPENSSL.note, ("tlsv1.3", "tlsv1.2", "tls")),
        "ssl.enabled.protocols": Foreign(
            _OPENSSL.note, ("tlsv1.2,tlsv1.3", "tlsv1.3,tlsv1.2", "['tlsv1.2', 'tlsv1.3']")
        ),
        "ssl.cipher.suites": Foreign(_OPENSSL.note, ("", "[]")),
        "ssl.curves.list": Foreign(_OPENSSL.note, ("",)),
        "ssl.sigalgs.list": Foreign(_OPENSSL.note, ("",)),
        "ssl.providers": Foreign(_OPENSSL.note, ("",)),
        "ssl.engine.location": Foreign(_OPENSSL.note, ("",)),
        "ssl.engine.id": Foreign(_OPENSSL.note, ("", "dynamic")),
        "ssl_engine_callback_data": _CALLBACK,
        "ssl.certificate.verify_cb": _CALLBACK,
        "ssl.ca.certificate.stores": Foreign("without ssl.ca.location the system's authorities are trusted", ("root",)),
        "ssl_key": Foreign("give the key as PEM text in ssl.key.pem"),
        "ssl_certificate": Foreign("give the certificate as PEM text in ssl.certificate.pem"),
        "ssl_ca": Foreign("give the authorities as PEM text in ssl.ca.pem"),
        "https.ca.pem": Foreign("write it to a file and name that in https.ca.location"),
        # SASL
        "sasl.jaas.config": _JAAS,
        **each(_HANDLER, "sasl.", "client.callback.handler.class login.callback.handler.class login.class"),
        **each(_KINIT, "sasl.kerberos.", "kinit.cmd min.time.before.relogin ticket.renew.jitter"),
        **each(_KINIT, "sasl.kerberos.", "ticket.renew.window.factor principal"),
        "sasl.kerberos.keytab": Foreign("run kinit -k -t KEYTAB before, or set KRB5_CLIENT_KTNAME"),
        **each(_LOGIN, "sasl.login.", "connect.timeout.ms read.timeout.ms refresh.buffer.seconds"),
        **each(_LOGIN, "sasl.login.refresh.", "min.period.seconds window.factor window.jitter"),
        **each(_LOGIN, "sasl.login.retry.backoff.", "max.ms ms"),
        **each(_BROKERS, "sasl.oauthbearer.", "clock.skew.seconds expected.audience expected.issuer"),
        **each(_BROKERS, "sasl.oauthbearer.jwks.endpoint.", "refresh.ms retry.backoff.max.ms retry.backoff.ms url"),
        **each(_BROKERS, "sasl.oauthbearer.", "scope.claim.name sub.claim.name"),
        "sasl.oauthbearer.header.urlencode": Foreign("client id and secret go out as they are", ("false",)),
        **each(_HANDLER, "sasl.oauthbearer.jwt.", "retriever.class validator.class"),
        "sasl.oauthbearer.grant.type": Foreign(_ASSERTION.note, ("client_credentials",)),
        "sasl.oauthbearer.metadata.authentication.type": Foreign(_ASSERTION.note, ("none",)),
        **each(
            _ASSERTION,
            "sasl.oauthbearer.assertion.",
            "algorithm claim.aud claim.exp.seconds claim.iss claim.jti.include claim.nbf.seconds claim.sub file "
            "jwt.template.file private.key.file private.key.passphrase private.key.pem template.file",
        ),
        "enable.sasl.oauthbearer.unsecure.jwt": Foreign(
            "unsecured tokens are for tests: let oauth_cb return one", ("false",)
        ),
        "oauthbearer_token_refresh_cb": Foreign("give oauth_cb, which returns the token"),
        # Connections
        "client.dns.lookup": Foreign(
            "all addresses of a name are tried, by the name in bootstrap.servers", ("use_all_dns_ips",)
        ),
        "socket.connection.setup.timeout.max.ms": Foreign(
            "the bound on setting up a connection is always socket.connection.setup.timeout.ms", None
        ),
        "socket.keepalive.enable": Foreign("TCP keep-alive is always on", ("true",)),
        "socket.nagle.disable": Foreign("Nagle's algorithm is always off", ("true",)),
        "broker.address.family": Foreign("all addresses of a name are tried, IPv4 and IPv6", ("any",)),
        "metadata.recovery.strategy": Foreign(
            "when no known broker answers, bootstrap.servers are asked again", ("rebootstrap",)
        ),
        "metadata.recovery.rebootstrap.trigger.ms": Foreign(
            "when no known broker answers, bootstrap.servers are asked again at once", None
        ),
        "topic.metadata.refresh.sparse": Foreign("only topics in use are asked for", ("true",)),
        "topic.blacklist": Foreign("subscribe to what you want to read; there is no list of the others", ("",)),
        "allow.auto.create.topics": Foreign(
            "reading never creates a topic: create it beforehand; a topic that is not there yet is waited for",
            ("false",),
        ),
        **each(_TUNING, "", "max.in.flight.requests.per.connection max.in.flight message.copy.max.bytes"),
        **each(_TUNING, "topic.metadata.", "refresh.fast.interval.ms refresh.fast.cnt propagation.max.ms"),
        **each(_TUNING, "", "socket.blocking.max.ms socket.max.fails broker.address.ttl reconnect.backoff.jitter.ms"),
        **each(_TUNING, "", "enable.random.seed internal.termination.signal builtin.features"),
        **each(_OLD, "api.version.", "request request.timeout.ms fallback.ms"),
        "broker.version.fallback": _OLD,
        # Callbacks, logs, metrics
        **each(_CALLBACK, "", "error_cb throttle_cb background_event_cb socket_cb connect_cb closesocket_cb open_cb"),
        **each(_CALLBACK, "", "resolve_cb opaque"),
        "enabled_events": Foreign(_CALLBACK.note, ("0",)),
        "stats_cb": _METRICS,
        "statistics.interval.ms": Foreign(_METRICS.note, ("0",)),
        "metric.reporters": Foreign(_METRICS.note, ("", "[]", "org.apache.kafka.common.metrics.jmxreporter")),
        "enable.metrics.push": Foreign(_METRICS.note, None),
        "auto.include.jmx.reporter": Foreign(_METRICS.note, None),
        "metrics.num.samples": Foreign(_METRICS.note, None),
        "metrics.recording.level": Foreign(_METRICS.note, None),
        "metrics.sample.window.ms": Foreign(_METRICS.note, None),
        "debug": _LOG,
        "log_cb": Foreign(_LOG.note),
        "logger": Foreign(_LOG.note),
        **each(_LOG, "", "log_level log.queue log.thread.name log.connection.close"),
        "config.providers": Foreign("values are taken as they are: resolve them before", ("", "[]")),
        "plugin.library.paths": Foreign("there are no plug-ins", ("",)),
        "interceptors": Foreign("there are no interceptors: work on the table that poll() returns"),
    }
)
