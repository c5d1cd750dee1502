"""What the records found out about the data, on the page."""

from report_runs import render, write_evaluation


def test_warnings_of_the_data_and_the_accuracy_without_duplicates_are_on_the_page(make_run, tmp_path):
    run = make_run()
    write_evaluation(
        run,
        data_warnings=[["Very unequal labels", "The train split has 121 of cats and 1 of <mice>."]],
        without_duplicates={"num_examples": 86, "accuracy": 0.75},
    )
    page = render([run], tmp_path / "out")["report.html"]
    assert "Very unequal labels" in page
    assert "121 of cats and 1 of &lt;mice&gt;" in page
    assert "On the other 86 test images it is 75" in page


def test_an_evaluation_of_before_says_nothing_of_them(make_run, tmp_path):
    run = make_run()
    write_evaluation(run)
    assert "On the other" not in render([run], tmp_path / "out")["report.html"]
