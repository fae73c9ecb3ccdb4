"""The pages, a module for each."""

from starlette.routing import Route

from dibs.web.pages import acts
from dibs.web.pages.audit import audit
from dibs.web.pages.deliveries import deliveries
from dibs.web.pages.doctor import doctor
from dibs.web.pages.edit import edit_page
from dibs.web.pages.errors import errors
from dibs.web.pages.export import export
from dibs.web.pages.job import job, raw_job
from dibs.web.pages.jobs import jobs
from dibs.web.pages.many import many, undo
from dibs.web.pages.overview import overview
from dibs.web.pages.policy import change_policy, policy_page
from dibs.web.pages.queue import queue
from dibs.web.pages.schedules import schedule, schedules
from dibs.web.pages.signals import metrics, workers_wanted
from dibs.web.pages.workers import workers

ROUTES = [
    Route("/", overview),
    Route("/metrics", metrics),
    Route("/queue", queue),
    Route("/workers/wanted", workers_wanted),
    Route("/jobs", jobs),
    Route("/jobs/many", many, methods=["POST"]),
    Route("/jobs/export", export),
    Route("/jobs/{id}", job),
    Route("/jobs/{id}/raw", raw_job),
    Route("/errors", errors),
    Route("/schedules", schedules),
    Route("/schedule", schedule),
    Route("/workers", workers),
    Route("/workers/stop", acts.stop_worker, methods=["POST"]),
    Route("/deliveries", deliveries),
    Route("/doctor", doctor),
    Route("/audit", audit),
    Route("/jobs/{id}/cancel", acts.cancel, methods=["POST"]),
    Route("/jobs/{id}/retry", acts.retry, methods=["POST"]),
    Route("/jobs/{id}/delete", acts.delete, methods=["POST"]),
    Route("/jobs/{id}/clone", acts.clone, methods=["POST"]),
    Route("/jobs/{id}/edit", edit_page, methods=["GET"]),
    Route("/jobs/{id}/edit", acts.edit, methods=["POST"]),
    Route("/undo", undo, methods=["POST"]),
    Route("/queue/policy", policy_page, methods=["GET"]),
    Route("/queue/policy", change_policy, methods=["POST"]),
    Route("/queue/pause", acts.pause_queue, methods=["POST"]),
    Route("/queue/resume", acts.resume_queue, methods=["POST"]),
    Route("/schedule/run", acts.run_schedule, methods=["POST"]),
    Route("/schedule/pause", acts.pause_schedule, methods=["POST"]),
    Route("/schedule/resume", acts.resume_schedule, methods=["POST"]),
]
