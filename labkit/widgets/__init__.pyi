from .views import (
    FigureView as FigureView,
    PictureButton as PictureButton,
    live as live,
    profile_view as profile_view,
)
