from sparkrelay.runtime.batch.shown_rows import print_rows, table_text


def test_a_table_is_laid_out_as_sparks_own():
    assert table_text(["user", "n"], [["ada", "1"], [None, "23456"]]).splitlines() == [
        "+----+-----+",
        "|user|    n|",
        "+----+-----+",
        "| ada|    1|",
        "|NULL|23456|",
        "+----+-----+",
    ]


def test_wide_characters_take_two_places_and_control_characters_are_spelt():
    assert table_text(["a"], [["日本"], ["x\x1b[2J\ny"]]).splitlines()[1:5:2] == [
        "|          a|",
        "|       日本|",
    ]
    assert "|x\\x1b[2J\\ny|" in table_text(["a"], [["x\x1b[2J\ny"]])


def test_deleted_rows_are_marked_where_there_are_some(capsys):
    print_rows("users-show, batch 3", ["user"], [("", "ada")])
    print_rows("users-show, batch 4", ["user"], [("", "ada"), ("(deleted)", "bob")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:5] == ["users-show, batch 3", "+----+", "|user|", "+----+", "| ada|"]
    assert lines[6:] == [
        "users-show, batch 4",
        "+---------+----+",
        "|         |user|",
        "+---------+----+",
        "|         | ada|",
        "|(deleted)| bob|",
        "+---------+----+",
    ]
