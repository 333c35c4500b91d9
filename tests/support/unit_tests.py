"""The test modules that `make unit` runs: tests of pure modules, which need no socket, no process and no Spark."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
UNIT_TESTS = frozenset(
    (
        "acceptance/test_reliability_sums.py",
        "acceptance/test_specification.py",
        "amqp/test_against_the_sdk.py",
        "amqp/test_codec.py",
        "amqp/test_frames.py",
        "amqp/test_malformed.py",
        "amqp/test_sections.py",
        "amqp/test_values.py",
        "api/test_drain_summary.py",
        "api/test_options.py",
        "api/test_results.py",
        "amqp/test_websocket.py",
        "backlog/test_aliasing.py",
        "backlog/test_broker_stamps.py",
        "backlog/test_dead_letters.py",
        "backlog/test_layout_cache.py",
        "backlog/test_letter_edit.py",
        "backlog/test_letter_file.py",
        "backlog/test_preview.py",
        "backlog/test_queue_selection.py",
        "backlog/test_restoring.py",
        "backlog/test_round_trip.py",
        "backlog/test_section_edit.py",
        "backlog/test_sender_trace.py",
        "backlog/test_times.py",
        "bus/test_pair.py",
        "cli/test_give_up.py",
        "cli/test_options.py",
        "config/test_config.py",
        "cost/test_estimate.py",
        "emulator/test_filters.py",
        "emulator/test_validation.py",
        "ledger/test_html.py",
        "model/test_connection_string.py",
        "model/test_entity_path.py",
        "model/test_formatting.py",
        "model/test_message_filter.py",
        "model/test_stats.py",
        "ops/test_destination_history.py",
        "ops/test_logs.py",
        "ops/test_progress.py",
        "ops/test_throughput.py",
        "sender/test_entities.py",
        "sender/test_events.py",
        "sender/test_send_flow.py",
        "sender/test_timeouts.py",
        "spark/test_container.py",
        "spark/test_ending.py",
        "spark/test_message_fields.py",
        "spark/test_property_text.py",
        "spark/test_source_filters.py",
        "spark/test_source_options.py",
        "spark/test_totals.py",
        "transfer/test_route.py",
        "transfer/test_suspicion.py",
        "transfer/test_window.py",
        "worker/test_backoffs.py",
        "worker/test_dispatcher.py",
        "worker/test_pair_drain.py",
        "worker/test_pauses.py",
        "worker/test_shared_limit.py",
        "worker/test_slot_budget.py",
        "yaml_settings/test_durations.py",
        "yaml_settings/test_reading.py",
        "yaml_settings/test_validation.py",
    )
)


def is_unit_test(file: Path) -> bool:
    """Whether `make unit` runs a test module. Conftest files belong to it, too."""
    return file.name == "conftest.py" or file.relative_to(TESTS).as_posix() in UNIT_TESTS
