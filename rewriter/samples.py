"""Conversations of our own, each with what it shows: for the demonstration, for warming up and for checking exports."""

from rewriter.conversation import Conversation

SAMPLES: tuple[tuple[str, Conversation], ...] = (
    ("ellipsis", Conversation(("成都今天热不热", "成都今天三十五度有点热"), "后天呢")),
    ("ellipsis", Conversation(("你会弹钢琴吗", "我从小就学钢琴"), "弹得好吗")),
    ("pronoun", Conversation(("你读过平凡的世界吗", "读过是一本很感人的小说"), "它的作者是谁")),
    ("pronoun", Conversation(("我最近迷上了周深", "唱歌真的好听"), "他多大了")),
    ("nothing to do", Conversation(("晚上吃火锅怎么样", "好啊我也想吃火锅"), "你知道长城有多长吗")),
    ("nothing to do", Conversation(("你在干嘛", "我在听歌"), "早上好")),
    ("no history", Conversation((), "北京明天会下雨吗")),
    ("unseen names", Conversation(("你听说过欧阳墨竹吗", "听说是新来的程序员"), "她是哪里人")),
    ("unseen names", Conversation(("青柠鲨鱼这家店好吃吗", "还不错我常去"), "在哪里")),
    ("mixed scripts", Conversation(("iPhone 27 Pro 出了吗", "昨天刚刚发布的"), "多少钱")),
    ("mixed scripts", Conversation(("你玩过 Hollow Knight 吗", "玩过很难但是好玩"), "是哪个公司做的")),
    (
        "five turns",
        Conversation(
            ("我想去云南旅游", "云南很漂亮啊", "你去过吗", "去年去过一次大理", "那边贵不贵"),
            "有什么好吃的",
        ),
    ),
)


def conversations() -> list[Conversation]:
    return [conversation for _, conversation in SAMPLES]
