from .comparison import Comparison as Comparison, compare as compare
from .profile import (
    FACTS as FACTS,
    Profile as Profile,
    read_profile as read_profile,
    roofline_frames as roofline_frames,
    save_card as save_card,
)
from .recording.phase_clock import minor_faults as minor_faults
from .recording.profile_steps import profile_script as profile_script, profile_steps as profile_steps
from .recording.recorder import SteadySteps as SteadySteps, StepRecorder as StepRecorder, StepWatcher as StepWatcher
from .recording.settings import CHATTER as CHATTER, ProfileSettings as ProfileSettings
from .step_time import call_tree as call_tree
from .tools.nsys import profile_under_nsys as profile_under_nsys
from .tools.programs import (
    BY_HAND as BY_HAND,
    ToolProfile as ToolProfile,
    check_tool as check_tool,
    command_by_hand as command_by_hand,
    is_tool_profile as is_tool_profile,
    read_tool_profile as read_tool_profile,
)
from .traces.timeline import memory_over_time as memory_over_time, timeline as timeline
from .traces.trace import CUDA_CALLS as CUDA_CALLS, ON_THE_DEVICE as ON_THE_DEVICE, read_trace as read_trace
from .traces.trace_file import TraceError as TraceError, stream_events as stream_events
