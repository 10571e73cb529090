from trainer import keras as keras
from trainer.api.job import Job as Job
from trainer.api.job import load as load
from trainer.api.result import Result as Result
from trainer.api.run import JobFailed as JobFailed
from trainer.api.run import Run as Run
from trainer.api.run import attach as attach
from trainer.api.run import jobs as jobs
from trainer.api.watch import watch as watch
from trainer.job.errors import Exit as Exit
from trainer.job.errors import TrainerError as TrainerError
from trainer.job.errors import UserError as UserError
from trainer.reporting import report as report
from trainer.workloads.batched import batched as batched
from trainer.workloads.files import files as files
from trainer.workloads.places import data as data

__version__: str
