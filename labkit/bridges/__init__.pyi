from .archive import pack as pack, record_for_others as record_for_others, unpack as unpack
from .exports import export_csv as export_csv, export_trackio as export_trackio
from .folders import write_run as write_run
from .logged import Logged as Logged, Point as Point, Wishes as Wishes
from .mlflow_runs import MlflowExport as MlflowExport
from .reproduction import Difference as Difference, differences as differences, result_differences as result_differences
from .sources import Imported as Imported, import_runs as import_runs
