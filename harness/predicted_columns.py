"""The columns of the cost model, of predictions and of the language loss; part of the vocabulary of ``harness.columns``."""

from __future__ import annotations

from harness.column_form import bounds, column

# fmt: off
_COSTS = (
    column("part", ("Part of a round", "라운드의 부분"), None, None, (
        "verify (the target's forward), beside (the same in rounds that read prompts too), draft (the drafter), host (the rest), pass (all "
        "of it, where the engine tells no parts).",
        "verify(대상 모델의 순전파), beside(프롬프트도 함께 처리하는 라운드의 순전파), draft(드래프터), host(나머지), "
        "pass(엔진이 나누어 알려 주지 않을 때 전체).",
    )),
    column("batch_size", ("Batch", "배치 크기"), "requests", None, (
        "Requests that decode in the same round, fewer than the tasks in progress.",
        "같은 라운드에서 함께 디코딩하는 요청 수. 진행 중인 작업 수보다 적습니다.",
    )),
    column("round_tokens", ("Tokens in the round", "라운드의 토큰"), "tokens", None, (
        "Tokens that the target looks at in one forward: one a request and all drafted ones; for draft the drafted ones alone.",
        "대상 모델이 한 번의 순전파에서 보는 토큰 수: 요청마다 하나와 초안 토큰 전부. draft에서는 초안 토큰만.",
    )),
    column("context_tokens", ("Context", "컨텍스트"), "tokens", None, (
        "Tokens that the requests of the round had before it, summed.", "라운드의 요청들이 그 전까지 가진 토큰 수의 합.")),
    column("n_rounds", ("Rounds behind it", "근거 라운드"), "rounds", None, (
        "Measured rounds behind the figure; for pass, decode passes of single requests.",
        "수치의 근거가 된 측정 라운드 수. pass에서는 요청별 디코딩 패스 수.",
    )),
    column("measured_ms", ("Measured", "측정"), "ms", "lower", (
        "Mean over kinds of rounds of their median time.", "라운드 종류별 중앙값의 평균.")),
    column("modelled_ms", ("Modelled", "모형"), "ms", "lower", (
        "What the cost model says of the same rounds.", "같은 라운드에 대해 비용 모형의 값.")),
    column("residual_share", ("Residual", "잔차"), "share", None, (
        "Modelled ÷ measured − 1.", "모형값 ÷ 측정값 − 1.")),
    column("cost_source", ("Fitted from", "적합 자료"), None, None, (
        "rounds (the engine tells the time of each) or cells (from the times of whole requests).",
        "rounds(엔진이 라운드마다 시간을 알려 줌) 또는 cells(요청 전체의 시간에서 구함).",
    )),
)

_PREDICTED = (
    column("hardware", ("Hardware", "하드웨어"), None, None, (
        "Row of the hardware catalogue; empty: the machine that was measured.", "하드웨어 목록의 행. 비어 있으면 측정 장비.")),
    column("num_tokens", ("Drafted tokens", "초안 길이"), "tokens", None, (
        "Most tokens that a request drafts in a round; 0: no drafting.",
        "한 라운드에서 요청 하나가 제안하는 최대 토큰 수. 0이면 초안 없음.",
    )),
    column("plain_ms", ("Round without drafts", "초안 없는 라운드"), "ms", "lower", (
        "Modelled time of a round in which nothing is drafted, mean over those with and without prompts beside.",
        "초안이 없는 라운드의 모형 시간. 프롬프트를 함께 처리하는 라운드까지 포함한 평균.")),
    column("draft_ms", ("Drafting", "초안 시간"), "ms", "lower", (
        "Modelled time of the drafter in a round.", "라운드에서 드래프터가 쓰는 모형 시간.")),
    column("verify_ms", ("Verification", "검증 시간"), "ms", "lower", (
        "Modelled time of the target's forward over the drafts, mean over rounds with and without prompts beside.",
        "초안을 검증하는 순전파의 모형 시간. 프롬프트를 함께 처리하는 라운드까지 포함한 평균.")),
    column("host_ms", ("Rest", "나머지"), "ms", "lower", (
        "Modelled time of the rest of a round.", "라운드 나머지의 모형 시간.")),
    column("decode_speed_up", ("Speed-up of decoding, modelled", "디코딩 속도 향상(모형)"), "x", "higher", (
        "Modelled tokens a second while decoding, with drafts ÷ without: tokens a pass × plain round ÷ (drafting + verification + rest).",
        "디코딩 중 초당 토큰의 모형값, 초안 있음 ÷ 없음: 패스당 토큰 × 초안 없는 라운드 ÷ (초안 + 검증 + 나머지).",
    )),
    column("best", ("Fastest", "가장 빠름"), None, None, (
        "Whether this draft length is the fastest for its batch size.", "이 배치 크기에서 가장 빠른 초안 길이인지.")),
    column("batch_break_even", ("Break-even batch, modelled", "손익분기 배치(모형)"), "requests", "higher", (
        "Requests in a round at which the modelled speed-up of decoding falls to 1; empty where it does not in the modelled range.",
        "디코딩 속도 향상의 모형값이 1이 되는 라운드의 요청 수. 모형 범위에서 지나지 않으면 비어 있습니다.",
    )),
    column("break_even_modelled", ("Break-even, modelled", "손익분기(모형)"), "tasks", "higher", (
        "The same in tasks in progress; empty outside the loads that were measured.",
        "같은 것을 동시 작업 수로 나타낸 값. 측정한 부하를 벗어나면 비어 있습니다.",
    )),
    column("highest_batch", ("Highest batch modelled", "모형의 최대 배치"), "requests", None, (
        "Largest batch size of which the model says anything at this draft length.", "이 초안 길이에서 모형의 유효 범위 내 최대 배치.")),
)

_HARDWARE = (
    column("bandwidth", ("Bandwidth", "대역폭"), "GB/s", "higher", (
        "Bandwidth of the memory that holds the weights.", "가중치가 놓인 메모리의 대역폭.")),
    column("dense_flops", ("Products", "연산 성능"), "TFLOP/s", "higher", (
        "Products of bf16 without sparsity.", "희소성 없는 bf16 연산 성능.")),
    column("memory", ("Memory", "메모리"), "GB", "higher", ("Memory, as sold.", "판매 표기 메모리 용량.")),
    column("single_tokens_per_s", ("One request without drafts, at most", "초안 없는 요청 하나의 상한"), "tokens/s", "higher", (
        "Modelled upper limit: every token reads all weights once, so bandwidth ÷ bytes of the weights.",
        "모형 상한: 토큰마다 가중치를 한 번 읽으므로 대역폭 ÷ 가중치 바이트.",
    )),
    column("saturation_tokens", ("Tokens to saturation", "포화 토큰 수"), "tokens", "higher", (
        "Tokens in a round from which products take longer than reading the weights; drafted tokens beyond are paid in full.",
        "연산이 가중치 읽기보다 오래 걸리기 시작하는 라운드의 토큰 수. 그 뒤의 초안 토큰은 연산 시간이 그대로 소요됩니다.",
    )),
    column("cited", ("Source of the row", "자료 출처"), None, None, ("Who gives these figures.", "수치를 공개한 출처.")),
)

_LANGUAGES = (
    column("reference_group", ("Against", "비교 언어"), None, None, (
        "Languages it is compared with, weighed by the kinds of steps that the group has.",
        "비교 대상 언어 묶음. 앞 묶음의 단계 종류 비중으로 가중합니다.",
    )),
    column("n_tasks_reference", ("Tasks, reference", "작업 수(비교)"), "tasks", None, (
        "Distinct tasks of the languages it is compared with.", "비교 대상 언어의 서로 다른 작업 수.")),
    column("n_kinds", ("Kinds of steps", "단계 종류 수"), None, None, (
        "Kinds of steps that both have; only these are compared. 0: none in common, compared as they are.",
        "양쪽에 모두 있는 단계 종류 수. 이것만 비교합니다. 0이면 공통 종류가 없어 그대로 비교합니다.",
    )),
    column("acceptance_length_reference", ("Acceptance length, reference", "수락 길이(비교)"), "tokens/round", "higher", (
        "That of the languages it is compared with, weighed by the kinds of steps of the group.",
        "비교 대상 언어의 수락 길이. 앞 묶음의 단계 종류 비중으로 가중합니다.",
    )),
    column("acceptance_length_loss", ("Acceptance length lost", "수락 길이 손실"), "tokens/round", "lower", (
        "Acceptance length of the reference − that of the group; negative: the group has more.",
        "비교 언어의 수락 길이 − 이 묶음의 수락 길이. 음수면 이 묶음이 더 길습니다.",
    )),
    *bounds("acceptance_length_loss", ("Acceptance length lost", "수락 길이 손실"), "tokens/round", "lower"),
    column("tokens_per_pass_reference", ("Tokens per pass, reference", "패스당 토큰(비교)"), "tokens/pass", "higher", (
        "That of the languages it is compared with, weighed by the kinds of steps of the group.",
        "비교 대상 언어의 패스당 토큰. 앞 묶음의 단계 종류 비중으로 가중합니다.",
    )),
    column("decode_s", ("Decoding a task", "작업당 디코딩"), "s", "lower", (
        "Mean time from first token to end, summed over the compared steps of a task.",
        "비교한 단계의 첫 토큰부터 끝까지 시간의 작업당 합의 평균.",
    )),
    column("time_loss_s", ("Time lost a task, modelled", "작업당 시간 손실(모형)"), "s", "lower", (
        "Decoding of a task less what it would take if each pass yielded as many tokens as in the reference; the most a drafter could win.",
        "작업당 디코딩 시간에서, 패스마다 비교 언어만큼 토큰을 냈을 때의 시간을 뺀 값. 드래프터로 얻을 수 있는 최대치.",
    )),
    column("time_loss_share", ("Decoding time lost, modelled", "디코딩 시간 손실 비율(모형)"), "share", "lower", (
        "The same as a share of the decoding time: 1 − tokens per pass ÷ those of the reference.",
        "같은 것을 디코딩 시간의 비율로: 1 − 패스당 토큰 ÷ 비교 언어의 패스당 토큰.",
    )),
    *bounds("time_loss_share", ("Decoding time lost, modelled", "디코딩 시간 손실 비율(모형)"), "share", "lower"),
    column("win_back", ("Hours to win back an hour of training", "학습 1시간의 회수 시간"), "h", "lower", (
        "Hours of serving these tasks at this load until a drafter that closes the whole gap has won back one hour of training on the same "
        "server; empty where no loss is shown, and where tasks would even then take longer than without a drafter.",
        "격차를 모두 해소한 드래프터가 같은 서버에서의 학습 1시간을 회수하기까지 이 부하로 이 작업을 처리하는 시간. "
        "손실이 확인되지 않거나, 손실을 모두 없애도 드래프터가 없을 때보다 느리면 비어 있습니다.",
    )),
)
# fmt: on

MODELLED = (*_COSTS, *_PREDICTED, *_HARDWARE, *_LANGUAGES)
