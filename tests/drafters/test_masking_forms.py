"""Names in the forms of office texts, and what has such a form without being one."""

from __future__ import annotations

import pytest

from drafters.masking import Masker, Mode, tape_scanner

KEY = b"a key of the tests"


def masked(*texts: str, mode: Mode = "label") -> list[str]:
    """The texts masked together."""
    masker = Masker(mode, KEY, tape_scanner())
    for text in texts:
        masker.learn(text, "a")
    masker.settle()
    return [masker.mask(text, "a") for text in texts]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "From: 오정세 <tae@x-corp.kr>\n보낸 사람: 임윤아\n받는 사람: 조인성; 한효주\n참조: 노윤서",
            ["오정세", "임윤아", "조인성", "한효주", "노윤서"],
        ),
        ("[신하균] [오후 3:12] 보냈습니다\n2024. 3. 1. 오후 3:13, 배두나 : 확인했습니다", ["신하균", "배두나"]),
        ("@고창석 확인 부탁드려요. cc 안보현\n> 홍경표: 네 알겠습니다", ["고창석", "안보현", "홍경표"]),
        ("<staff><name>송하윤</name><성명>유연석</성명><row name=\"권나라\" tel='010-2345-8765'/></staff>", ["송하윤", "유연석", "권나라"]),
        ("manager: 황인엽\nstaff:\n  - name: 주지훈\n    tel: 010-9988-1199\n  - 우도환\n", ["황인엽", "주지훈", "우도환"]),
        ("INSERT INTO staff (id, name, tel) VALUES (1, '나인우', '010-5432-1987'), (2, '박은빈', NULL);", ["나인우", "박은빈"]),
        ("번호,이름(한글),담당자(정),고객 성명\n1,최우식,김다미,이세영\n", ["최우식", "김다미", "이세영"]),
        ('{"김철호": {"phone": "010-8899-1212"}, "rows": [["윤미래", "010-3131-4242"]]}', ["김철호", "윤미래"]),
        ('{"name": {"first": "Jisoo", "last": "Hwangbo"}, "note": "x"}', ["Jisoo", "Hwangbo"]),
        ("Signed-off-by: Tak Jaehun <tak.jh@corp-x.kr>\nfrom Piet van Harrow <p@corp-x.kr>", ["Tak", "Jaehun", "Piet", "Harrow"]),
        ("François Lefèvre 씨에게 전달함. Dear Mr. Åkesson, thank you. 다시 François Lefèvre는", ["François", "Lefèvre", "Åkesson"]),
        (
            "이름 | 직급 | 전화\n제갈윤희 | 사원 | 010-5566-1122\nВладимир Петров | 주임 | 010-5566-1123\n山田太郎 | 대리 | 010-5566-1124",
            ["제갈윤희", "Владимир", "Петров", "山田太郎"],
        ),
        ("성명 | 도경수\n연락처 | 010-2020-4141", ["도경수", "2020-4141"]),
        ("정다은님께 전달 바랍니다.\n한가람 드림\n서강준 | 총무팀 | 과장", ["정다은", "한가람", "서강준"]),
    ],
)  # fmt: skip
def test_names_are_found_by_the_form(text: str, names: list[str]) -> None:
    """Heads of mails and chats, tags, lists, SQL, tables, keys and forms of address give a name away."""
    (result,) = masked(text)
    assert not [name for name in names if name in result]
    assert "[이름]" in result


@pytest.mark.parametrize(
    "text",
    [
        "수신: 인사팀\n참조: 각 부서장, 전 임직원\nFrom: 부산\nTo: 대구\nCc: Sales Department",
        "> 주의점: 저장하지 않으면 사라집니다.\n@Override\n@전체 공지입니다.",
        "수신: 위원장, 구청장\n참조: 주무관\n간호사님과 조합장님, 승무원님께",
        "고객님께 안내드립니다. 담당자님의 확인이 필요합니다. 검토 부탁 드림",
        "<name>search_mail</name><title>업무 보고</title><input name=\"email\" address='주소'/>",
        "INSERT INTO items (id, name, price) VALUES (1, '노트북', 1500000);",
        "steps:\n  - 점검표\nusers:\n  - admin\n  - readonly\n",
        '{"노트북": {"수량": 3}, "서버": {"phone": "-"}, "name": {"type": "string", "first": 1}}',
        "Dear Customer Support Team,\n12 Elm Dr. Suite 5, QA 팀장님, Azure Data 팀에서",
        "파일이름,제품 이름(한글),담당\n보고서,노트북,총무팀\n",
        '{"list": ["정산", "a@b.example"], "주문현": "2024-01-01", "rows": [["주문현", "2024-01-01"]]}',
    ],
)
def test_ordinary_words_in_such_forms_stay(text: str) -> None:
    """Teams, places, titles, goods and schemas are no persons."""
    assert "[이름]" not in masked(text)[0]


def test_name_without_any_cue_stays() -> None:
    """The limit that the corpus report states: in running text alone no name is looked for."""
    text = "회의에는 Björn Åkesson, Nguyễn Văn Thành 이 왔다."
    assert masked(text) == [text]


def test_rows_under_heads_in_the_first_column() -> None:
    """A form of heads and values is no table with one column of names: its further heads stay."""
    assert masked("성명,도경수\n부서,총무팀\n연락처,010-2020-4141") == ["성명,[이름]\n부서,총무팀\n연락처,[전화번호]"]
