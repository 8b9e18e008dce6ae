from .board import Board as Board
from .curves import Curve as Curve
from .server import serve as serve
