from .capture import StepWatcher as StepWatcher, minor_faults as minor_faults
from .over_time import memory_over_time as memory_over_time, timeline as timeline
from .profile import (
    Comparison as Comparison,
    Profile as Profile,
    compare as compare,
    profile_steps as profile_steps,
    read_profile as read_profile,
    roofline_frames as roofline_frames,
)
from .script_steps import profile_script as profile_script, profile_with as profile_with
from .step_time import RankSteps as RankSteps, call_tree as call_tree, compare_ranks as compare_ranks
from .tools import (
    BY_HAND as BY_HAND,
    CHATTER as CHATTER,
    TOOLS as TOOLS,
    ProfileSettings as ProfileSettings,
    ToolProfile as ToolProfile,
    check_tool as check_tool,
    command_by_hand as command_by_hand,
    is_tool_profile as is_tool_profile,
    read_tool_profile as read_tool_profile,
)
from .trace import CUDA_CALLS as CUDA_CALLS, ON_THE_DEVICE as ON_THE_DEVICE, read_trace as read_trace
from .trace_file import TraceError as TraceError, stream_events as stream_events
from .work import Inputs as Inputs, operator_work as operator_work
