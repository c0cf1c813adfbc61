"""The one mechanism of all clients' settings."""

import dataclasses
import pickle
from types import MappingProxyType

import pytest

from sparkrelay.errors import ConfigException
from sparkrelay.settings import Foreign, MaskedSettings, check, read, setting, settings_of, shown


def check_leaves(leaves):
    if "nettle" in leaves:
        raise ValueError("it stings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tea:
    sort: str = setting(dataclasses.MISSING, "what to brew", choices=("green", "Black"), aliases=("tea.sort",))
    brew_ms: int = setting(180_000, "how long, ms", least=1_000, most=600_000)
    milk: bool = setting(False, "whether there is milk in it")
    secret_password: str | None = setting(None, "of the guild", secret=True)
    leaves: tuple[str, ...] = setting((), "what is in it", check=check_leaves)
    pour_cb: "Callable | None" = setting(None, "pours", key="pour_cb")  # noqa: F821 - only its name is read


FOREIGN = {"sugar": Foreign("there is none: bring your own", ("0", "none")), "cup.size": Foreign("cups are cups", None)}


def brew(config, **kwargs):
    return read(Tea, config, what="the tea", foreign=FOREIGN, **kwargs)


def test_values_are_converted_and_given_by_field():
    values, rest = brew(
        {"tea.sort": " black ", "brew.ms": "2000", "milk": "TRUE", "secret.password": " x ", "pour_cb": print}
    )
    assert values == {"sort": "Black", "brew_ms": 2000, "milk": True, "secret_password": " x ", "pour_cb": print}
    assert not rest


@pytest.mark.parametrize("leaves", ["assam, ceylon,", ["assam", "ceylon"], ("assam", "ceylon")])
def test_names_come_as_a_list_or_as_kafka_writes_lists(leaves):
    assert brew({"sort": "green", "leaves": leaves})[0]["leaves"] == ("assam", "ceylon")


def test_whole_numbers_may_be_floats_and_none_is_the_default():
    assert brew({"sort": "green", "brew.ms": 2e3, "milk": None})[0] == {"sort": "green", "brew_ms": 2000}


def test_what_is_somebody_elses_is_given_back():
    assert brew({"sort": "green", "room": 7}, also=["room"]) == ({"sort": "green"}, {"room": 7})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"srot": "green"}, "unknown setting srot='green' of the tea; did you mean 'sort'?"),
        ({"brew_ms": 1}, r"did you mean 'brew\.ms'"),
        ({"zzz": 1}, "unknown setting zzz=1 of the tea; leave it out: docs/settings.md"),
        ({"secret.pasword": "hunter2"}, r"secret\.pasword=\(hidden\)"),
        ({"brew.ms": "soon"}, r"brew\.ms='soon' is not a valid whole number"),
        ({"brew.ms": True}, r"brew\.ms=True is not a valid whole number"),
        ({"milk": "perhaps"}, "milk='perhaps' is not a valid boolean"),
        ({"sort": 7}, "sort=7 is not a valid string"),
        ({"pour_cb": "print"}, "pour_cb='print' is not a valid function"),
        ({"secret.password": 7}, r"secret\.password=\(hidden\) is not"),
        ({"sort": "green", "tea.sort": "black"}, r"sort and tea\.sort are one setting with two values"),
        ({"sugar": "2"}, "sugar='2' is not a setting of the tea: there is none: bring your own"),
        ({"brew.ms": 0.5}, r"brew\.ms=0\.5 is not a valid whole number"),
        ({"leaves": ["assam", 7]}, r"leaves=\['assam', 7\] is not a valid list of names"),
        ({"sort": None, "milk": True}, "sort is required: what to brew"),
        ({7: 1}, "setting names are strings"),
    ],
)
def test_mistakes_are_named(config, message):
    with pytest.raises(ConfigException, match=message):
        brew(config)


def test_settings_without_effect_are_noted(caplog):
    caplog.set_level("INFO")
    values, _ = brew({"sort": "green", "sugar": "None", "cup.size": 9})
    assert values == {"sort": "green"}
    assert "sugar='None' has no effect: there is none" in caplog.text
    assert "cup.size=9 has no effect" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sort": "mint"}, "sort='mint' must be one of green, Black"),
        ({"brew_ms": 1}, r"brew\.ms=1 is out of range; give 1000 to"),
        ({"leaves": ("nettle",)}, r"leaves=\('nettle',\): it stings"),
    ],
)
def test_bounds_and_choices_hold_for_instances_too(change, message):
    check(Tea(sort="green"))
    with pytest.raises(ConfigException, match=message):
        check(Tea(**{"sort": "green"} | change))


def test_secrets_stay_out_of_representations_and_messages():
    assert "hunter2" not in repr(Tea(sort="green", secret_password="hunter2"))
    for key in (
        "sasl.password",
        "sasl.pasword",
        "sasl_password",
        "sasl.jaas.config",
        "ssl.key.pem",
        "client.secret",
        "ssl_key",
        "oauth_cb",
    ):
        assert shown(key, "hunter2") == f"{key}=(hidden)"
    assert shown("ssl.kye", "-----BEGIN PRIVATE KEY-----") == "ssl.kye=(hidden)"
    assert shown("ssl.key.location", "/key") == "ssl.key.location='/key'"


def test_keys_follow_from_names():
    assert [known.key for known in settings_of(Tea).values()] == [
        "sort",
        "brew.ms",
        "milk",
        "secret.password",
        "leaves",
        "pour_cb",
    ]


def test_masked_settings_show_all_but_secrets():
    plain = {"client.id": "a", "sasl.password": "s3cret", "consumer.ssl.key.password": "s3cret", "n": 1}
    masked = MaskedSettings(plain)
    assert masked == plain
    assert (
        repr(masked)
        == str(masked)
        == ("{client.id='a', sasl.password=(hidden), consumer.ssl.key.password=(hidden), n=1}")
    )
    assert "s3cret" not in f"{MappingProxyType(masked)}"
    assert pickle.loads(pickle.dumps(masked)) == masked
