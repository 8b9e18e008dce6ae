from .figure_views import (
    FigureView as FigureView,
    PictureButton as PictureButton,
    live as live,
)
from .profile_explorer import profile_view as profile_view
from .run_monitor import monitor as monitor
