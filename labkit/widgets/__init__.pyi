from .counters_view import monitor as monitor
from .explorer import explore as explore
from .figures import FigureView as FigureView, PictureButton as PictureButton
from .live_curves import live as live
from .profile_explorer import profile_view as profile_view
from .recorder import Recorder as Recorder
