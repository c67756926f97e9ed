"""The columns of rounds, acceptance and odd outputs; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from harness.column_form import bounds, column

# fmt: off
ACCEPTED = (
    column("decode_passes", ("Decode passes", "디코딩 패스"), "passes", None, (
        "Forward passes of the target after the prompt, those without a draft included.",
        "프롬프트 이후 대상 모델의 순전파 수. 초안이 없던 경우도 포함합니다.",
    )),
    column("num_drafts", ("Rounds", "검증 라운드"), "rounds", None, (
        "Propose-and-verify rounds in which at least one token was drafted.",
        "초안 토큰이 하나라도 제안되어 검증한 횟수.",
    )),
    column("num_draft_tokens", ("Drafted tokens", "초안 토큰"), "tokens", None, (
        "Tokens the drafter proposed.", "드래프터가 제안한 토큰 수.")),
    column("num_accepted_tokens", ("Accepted tokens", "수락된 토큰"), "tokens", None, (
        "Drafted tokens the target accepted; the bonus token is left out.",
        "대상 모델이 수락한 초안 토큰 수. 보너스 토큰은 제외합니다.",
    )),
    column("num_accepted_in_rounds", ("Accepted in known rounds", "라운드를 아는 수락 토큰"), "tokens", None, (
        "Accepted tokens of the steps whose rounds are known; acceptance length = 1 + this ÷ rounds.",
        "라운드를 아는 단계의 수락된 토큰 합. 수락 길이 = 1 + 이 값 ÷ 라운드.",
    )),
    column("server_num_drafts", ("Rounds, server", "검증 라운드(서버)"), "rounds", None, (
        "The server's own count over the cell.", "셀 동안 서버가 자체적으로 센 수.")),
    column("server_num_draft_tokens", ("Drafted tokens, server", "초안 토큰(서버)"), "tokens", None, (
        "The server's own count over the cell.", "셀 동안 서버가 자체적으로 센 수.")),
    column("server_num_accepted_tokens", ("Accepted tokens, server", "수락된 토큰(서버)"), "tokens", None, (
        "The server's own count over the cell.", "셀 동안 서버가 자체적으로 센 수.")),
    column("counters_match", ("Counters match", "계수 일치"), None, None, (
        "Whether the sums over requests equal the server's own counters.", "요청별 합이 서버 계수와 같은지.")),
    column("foreign_requests", ("Requests of others", "다른 사용자 요청"), "requests", "lower", (
        "Requests of others that the server worked on while the cell ran; empty where it does not tell.",
        "셀이 실행되는 동안 서버가 처리한 다른 사용자의 요청 수. 서버가 알려 주지 않으면 비어 있습니다.")),
    column("acceptance_length", ("Acceptance length", "수락 길이"), "tokens/round", "higher", (
        "1 + accepted ÷ rounds, ratio of sums: tokens a round yields, the target's bonus token included.",
        "1 + 수락된 토큰 합 ÷ 라운드 합. 라운드당 생성 토큰 수이며 보너스 토큰을 포함합니다.",
    )),
    *bounds("acceptance_length", ("Acceptance length", "수락 길이"), "tokens/round", "higher"),
    column("acceptance_length_macro", ("Acceptance length, macro", "수락 길이(매크로)"), "tokens/round", "higher", (
        "Mean of the steps' own acceptance lengths: every step weighs the same, however long.",
        "단계별 수락 길이의 단순 평균. 길이에 상관없이 모든 단계의 가중치가 동일합니다.",
    )),
    column("acceptance_rate", ("Acceptance rate", "수락률"), "share", "higher", (
        "Accepted ÷ drafted tokens, ratio of sums, bonus token left out; falls when more is drafted at a time.",
        "수락된 토큰 합 ÷ 초안 토큰 합. 보너스 제외. 한 번에 많이 제안할수록 낮아집니다.",
    )),
    column("tokens_per_pass", ("Tokens per pass", "패스당 토큰"), "tokens/pass", "higher", (
        "1 + accepted ÷ decode passes, ratio of sums, passes without a draft included.",
        "1 + 수락된 토큰 합 ÷ 디코딩 패스 합. 초안 없는 패스도 포함합니다.",
    )),
    *bounds("tokens_per_pass", ("Tokens per pass", "패스당 토큰"), "tokens/pass", "higher"),
    column("spec_source", ("Source of counts", "계수 출처"), None, None, (
        "Where the counts come from: round, request (the engine tells each), or window (server counters).",
        "계수의 출처: round, request(엔진이 각각 보고), window(서버 계수).",
    )),
    column("position", ("Draft position", "초안 위치"), None, None, (
        "Place of a token in the draft, from 1.", "초안 안에서 토큰의 위치, 1부터.")),
    column("survival", ("Survival", "생존율"), "share", "higher", (
        "Share of rounds with at least this many drafted tokens accepted; acceptance length = 1 + their sum.",
        "초안이 이 위치까지 모두 수락된 라운드의 비율. 수락 길이 = 1 + 생존율의 합.",
    )),
    column("repetitive", ("Repetitive", "반복 출력"), None, None, (
        "Whether the output repeats itself, which inflates acceptance.",
        "출력이 반복되는지. 수락 수치를 과대평가하게 합니다.",
    )),
    column("repetitive_share", ("Repetitive share", "반복 출력 비율"), "share", "lower", (
        "Share of steps whose output repeats itself.", "출력이 반복되는 단계의 비율.")),
    column("cut_share", ("Cut at the limit", "한도에서 잘린 비율"), "share", "lower", (
        "Share of steps whose output the token limit cut; what their last round accepted beyond the limit is counted by some engines.",
        "출력이 토큰 한도에서 잘린 단계의 비율. 한도 뒤로 수락된 토큰까지 세는 엔진도 있습니다.",
    )),
    column("cautions", ("Cautions", "유의 사항"), None, None, (
        "Findings that bear on the acceptance figures of the row, by code; empty: none was found.",
        "이 행의 수락 수치에 영향을 주는 타당성 검사 결과의 코드. 없으면 비어 있습니다.",
    )),
)
# fmt: on
